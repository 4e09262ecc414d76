//! Requests that other HTTP servers answer: the action `proxy`, `upstreams`, and applications of the type `http`.
//!
//! - `mod`: a request's way through servers and connections; the client's answer when there is no response
//! - `balance`: which server of an upstream is next; `retry`: which requests may be sent twice
//! - `application`: the processes of an HTTP application; `assigned`: their requests, and those of servers of upstreams
//! - `connection`: connections; `tls`: encrypted ones; `health`: which servers of upstreams get requests
//! - `head`: which parts of a message's head are passed on, and how it is framed
//! - `exchange`, `request_body`, `response_body`, `timeout`: one request on one connection, streamed both ways
//! - `tunnel`: WebSockets
//!
//! No connection, or a connection that ends before a response: 502. A server that does not respond in time: 504. Each is
//! logged with one line that names the server. If a response breaks off later, the client's connection is closed. Errors
//! of the client's body are answered 400, 408 or 413.

mod application;
mod assigned;
mod balance;
mod connection;
mod exchange;
mod head;
mod health;
mod request_body;
mod response_body;
mod retry;
mod timeout;
mod tls;

#[cfg(test)]
mod tests;

pub use application::HttpGeneration;
pub use balance::Balancer;
pub use health::checks::HealthChecks;
pub use health::states::HealthStates;
pub use response_body::UpstreamBody;
use response_body::UpstreamStream;
pub use tls::{TlsBySettings, UpstreamTlsConfigs};

use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::subject::Subject;
use crate::response::failure::{Answer, Failure};
use application::ProcessRequest;
use assigned::AssignedRequest;
use connection::pool::{ConnectionPool, UpstreamConnection};
use exchange::{ExchangeError, exchange};
use head::Outgoing;
use head::forwarded_headers::ForwardedHeaders;
use health::server_health::RequestFailure;
use howdah_config::{Endpoint, Http, ProxySettings};
use http::{Response, StatusCode};
use hyper::body::Body;
use request_body::ClientBody;
use retry::RetryPolicy;
use rustls::ClientConfig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tls::handshake::ServerTls;
use tokio::time::{Instant, timeout_at};

/// A thread's connections to other servers.
#[derive(Default)]
pub struct Proxy {
    /// By server; several if it is used with different TLS.
    pools: RefCell<HashMap<Endpoint, Vec<Rc<ConnectionPool>>>>,
}

/// The server or servers that may answer.
#[derive(Clone, Copy)]
pub enum ProxyTarget<'a> {
    /// This server, with the settings of its TLS.
    Server(&'a Endpoint, &'a ProxySettings, Option<&'a Arc<ClientConfig>>),
    /// One of the servers of an upstream.
    Upstream(&'a Balancer),
    /// One of the processes of an HTTP application.
    Application(&'a Arc<HttpGeneration>, &'a ProxySettings),
}

/// The servers to which a request may still be sent.
struct Candidates<'a> {
    proxy: &'a Proxy,
    to: ProxyTarget<'a>,
    tried: Vec<usize>,
    /// The request of the last server, if its requests are counted.
    assigned: Option<AssignedRequest>,
}

/// `Retry-After` of an application that has no process, in seconds.
const NO_PROCESS_RETRY_AFTER: u32 = 5;

// === impl Proxy ===

impl Proxy {
    /// Forwards a request, and returns its response.
    ///
    /// # Errors
    /// 502 and 504 when no server answers, which is logged; 400, 408 and 413 for errors of the client's body.
    pub async fn forward(
        &self,
        to: ProxyTarget<'_>,
        subject: &Subject<'_>,
        body: IncomingBody,
        limits: &Http,
        clock: &RequestClock,
    ) -> Answer<UpstreamBody> {
        let body = ClientBody::new(body, limits)?;
        let request = subject.parts;
        let target = head::target::of(subject)?;
        let upgrade = head::upgrade::requested(request, body.exists());
        let settings = to.settings();
        let forwarded = settings.forwarded_headers.then(|| ForwardedHeaders::of(subject));
        let inform = &|status, headers: &_| clock.inform(status, headers);
        let assigned = subject.origin.assigned_headers;
        self.answer(to, &Outgoing { request, target, body, upgrade, assigned, forwarded, settings, inform }).await
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        self.pools.borrow_mut().retain(|_, pools| {
            pools.retain(|pool| pool.sweep() || Rc::strong_count(pool) > 1);
            !pools.is_empty()
        });
    }

    async fn answer(&self, to: ProxyTarget<'_>, outgoing: &Outgoing<'_>) -> Answer<UpstreamBody> {
        let retry = RetryPolicy::new(&outgoing.request.method, outgoing.body.exists());
        let mut candidates = Candidates { proxy: self, to, tried: Vec::new(), assigned: None };
        // A process of an application may be started again meanwhile.
        let deadline = Instant::now() + outgoing.settings.connect_timeout;
        let mut pool = match candidates.next() {
            Some(pool) => pool,
            None => candidates.next_when_ready(deadline).await.ok_or_else(|| candidates.nothing_left())?,
        };
        let mut was_sent = false;
        loop {
            let began = Instant::now();
            let error = match send(&pool, outgoing, retry).await {
                Ok(mut response) => {
                    candidates.succeeded(began);
                    response.body_mut().hold(candidates.assigned.take());
                    return Ok(response);
                }
                Err(ExchangeError::Client(failure)) => return Err(failure),
                Err(error) => error,
            };
            // A server that was known to be down is not logged again.
            let is_now_down = candidates.failed(&error);
            let is_logged = !matches!(error, ExchangeError::Unconnected(_)) || is_now_down;
            let tries_next = match error {
                ExchangeError::Unconnected(_) | ExchangeError::Unsent => true,
                // A request that kills a server is not sent to all of them.
                ExchangeError::Unanswered(_) => {
                    !std::mem::replace(&mut was_sent, true) && retry.may_repeat(outgoing.body.has_begun())
                }
                _ => false,
            };
            let upstream = pool.endpoint.clone();
            let reason = error.to_string();
            let mut next = tries_next.then(|| candidates.next()).flatten();
            if next.is_none() && tries_next {
                next = candidates.next_when_restarted(deadline).await;
            }
            let Some(next) = next else {
                let failure = error.failure();
                let status = failure.status().as_u16();
                tracing::error!(%upstream, reason, status, "cannot forward a request");
                return Err(failure);
            };
            if is_logged {
                tracing::warn!(%upstream, reason, "no response from this server; trying the next one of the upstream");
            }
            pool = next;
        }
    }

    fn pool(&self, endpoint: &Endpoint, tls: Option<ServerTls>, listening_user: Option<u32>) -> Rc<ConnectionPool> {
        let mut pools = self.pools.borrow_mut();
        let is_same = |pool: &&Rc<ConnectionPool>| pool.tls == tls && pool.listening_user == listening_user;
        let known = pools.get(endpoint).and_then(|pools| pools.iter().find(is_same));
        if let Some(pool) = known {
            return Rc::clone(pool);
        }
        let pool = Rc::new(ConnectionPool::new(endpoint, tls, listening_user));
        pools.entry(endpoint.clone()).or_default().push(Rc::clone(&pool));
        pool
    }
}

/// Sends the request to one server: on an idle connection, and on a new one if the idle connection turns out to be dead.
async fn send(
    pool: &Rc<ConnectionPool>,
    outgoing: &Outgoing<'_>,
    retry: RetryPolicy,
) -> Result<Response<UpstreamBody>, ExchangeError> {
    if let Some(mut connection) = pool.take(retry.max_idle()) {
        match exchange(&mut connection, outgoing, &pool.endpoint).await {
            Ok(response) => return respond(pool, outgoing, connection, response).await,
            Err(ExchangeError::Unsent) => {}
            Err(ExchangeError::Unanswered(_)) if retry.may_repeat(outgoing.body.has_begun()) => {}
            Err(error) => return Err(error),
        }
        tracing::debug!(upstream = %pool.endpoint, "an idle connection was closed; sending the request on a new one");
    }
    // Boxed: most requests need no new connection, and all have the memory of this future.
    let connect = Box::pin(pool.connect(outgoing.settings.connect_timeout));
    let mut connection = connect.await.map_err(ExchangeError::Unconnected)?;
    let response = exchange(&mut connection, outgoing, &pool.endpoint).await?;
    respond(pool, outgoing, connection, response).await
}

async fn respond(
    pool: &Rc<ConnectionPool>,
    outgoing: &Outgoing<'_>,
    mut connection: UpstreamConnection,
    mut response: Response<hyper::body::Incoming>,
) -> Result<Response<UpstreamBody>, ExchangeError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !outgoing.upgrade.as_ref().is_some_and(|requested| head::upgrade::is_granted(response.headers(), requested))
        {
            return Err(ExchangeError::Broken("it changed to a protocol that was not requested".into()));
        }
        let upgraded = hyper::upgrade::on(&mut response).await;
        let upgraded = upgraded.map_err(|error| ExchangeError::Broken(exchange::describe(&error)))?;
        let (head, _) = response.into_parts();
        return Ok(head::switching_protocols(head).map(|()| UpstreamBody::Tunnel(Some(upgraded))));
    }
    connection.keep_alive = head::keep_alive(response.headers());
    let (head, incoming) = response.into_parts();
    let length = incoming.size_hint().exact();
    let head =
        head::response(head, length, outgoing.request).map_err(|problem| ExchangeError::Broken(problem.into()))?;
    let limit = outgoing.settings.response_timeout;
    let mut body = UpstreamStream::new(incoming, connection, Rc::clone(pool), Rc::clone(&outgoing.body), limit);
    if length.is_none() {
        body.read_ahead().await.map_err(|problem| match outgoing.body.failure() {
            Some(failure) => ExchangeError::Client(failure),
            None => ExchangeError::Broken(problem),
        })?;
    }
    Ok(head.map(|()| UpstreamBody::Stream(body)))
}

// === impl ProxyTarget ===

impl<'a> ProxyTarget<'a> {
    fn settings(&self) -> &'a ProxySettings {
        match self {
            ProxyTarget::Server(_, settings, _) | ProxyTarget::Application(_, settings) => settings,
            ProxyTarget::Upstream(balancer) => &balancer.settings,
        }
    }
}

// === impl Candidates ===

impl Candidates<'_> {
    /// The next server that was not tried. Servers that are known to be down come last.
    fn next(&mut self) -> Option<Rc<ConnectionPool>> {
        let (endpoint, settings, tls) = match self.to {
            ProxyTarget::Server(endpoint, settings, tls) => {
                self.tried.is_empty().then(|| self.tried.push(0))?;
                (endpoint, settings, tls)
            }
            ProxyTarget::Upstream(balancer) => {
                let is_left = |server| !self.tried.contains(&server);
                let is_up = |server| is_left(server) && balancer.health(server).is_up();
                let server = balancer.next(is_up).or_else(|| balancer.next(is_left))?;
                self.tried.push(server);
                self.assigned = Some(AssignedRequest::Server { _request: balancer.health(server).begin() });
                (balancer.endpoint(server), &balancer.settings, balancer.tls.as_ref())
            }
            ProxyTarget::Application(generation, _) => {
                // Before the next one is chosen, because it counts as a request of its process.
                self.assigned = None;
                return generation.assign(&self.tried).map(|request| self.assign(request));
            }
        };
        Some(self.proxy.pool(endpoint, ServerTls::of(endpoint, settings, tls), None))
    }

    fn assign(&mut self, request: ProcessRequest) -> Rc<ConnectionPool> {
        self.tried.push(request.process());
        let pool = self.proxy.pool(request.endpoint(), None, request.listening_user());
        self.assigned = Some(AssignedRequest::Process { _request: request });
        pool
    }

    /// The next process of an application, when one is ready; `None` for others, and after the deadline.
    async fn next_when_ready(&mut self, deadline: Instant) -> Option<Rc<ConnectionPool>> {
        let ProxyTarget::Application(generation, _) = self.to else { return None };
        self.tried.clear();
        let request = timeout_at(deadline, generation.assign_when_ready()).await.ok()?;
        Some(self.assign(request))
    }

    /// The same after all processes have failed: the only one has probably died.
    async fn next_when_restarted(&mut self, deadline: Instant) -> Option<Rc<ConnectionPool>> {
        let ProxyTarget::Application(generation, _) = self.to else { return None };
        self.assigned = None;
        if !generation.pause(deadline).await {
            return None;
        }
        self.next_when_ready(deadline).await
    }

    /// The failure of a request to which no server could be given.
    fn nothing_left(&self) -> Failure {
        match self.to {
            ProxyTarget::Application(..) => {
                tracing::error!("no process of the application is ready: answered 503; the log has their deaths");
                Failure::Unavailable { retry_after: NO_PROCESS_RETRY_AFTER }
            }
            _ => Failure::BadGateway,
        }
    }

    /// The last one has answered a request that began at this time.
    fn succeeded(&self, began: Instant) {
        if let (ProxyTarget::Upstream(balancer), Some(server)) = (self.to, self.tried.last()) {
            balancer.health(*server).succeeded(began);
        }
    }

    /// The last one has not answered. Returns whether it was up until now, and is down.
    fn failed(&self, error: &ExchangeError) -> bool {
        let (ProxyTarget::Upstream(balancer), Some(server)) = (self.to, self.tried.last()) else { return false };
        let failure = match error {
            ExchangeError::Unconnected(_) => RequestFailure::Connection,
            _ => RequestFailure::Response,
        };
        balancer.health(*server).failed(failure, balancer.failure_limit, &error.to_string())
    }
}
