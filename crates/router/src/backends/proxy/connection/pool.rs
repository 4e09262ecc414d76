//! The connections of one thread to one endpoint that wait for their next request.
//!
//! The connection that was used last is used first, so that surplus connections grow old and are closed. hyper watches
//! an idle connection: if the upstream closes it, or sends bytes without a request, it is known as closed before its next
//! use. `retry` handles a connection that is closed at the moment of its use.

use crate::backends::connecting::{KnownAddresses, PathOwner};
use crate::backends::proxy::connection::connect::{ConnectError, connect};
use crate::backends::proxy::connection::socket::SocketProgress;
use crate::backends::proxy::request_body::RequestBody;
use crate::backends::proxy::retry::IDLE_TIMEOUT;
use crate::backends::proxy::tls::handshake::ServerTls;
use howdah_config::Endpoint;
use http::{HeaderMap, StatusCode};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

/// The limit for idle connections of one thread to one endpoint.
const MAX_IDLE: usize = 32;
/// How long the end of a request may take after the end of its response.
const REQUEST_END_TIMEOUT: Duration = Duration::from_secs(1);
/// The size limit of a response's head, and of the bytes that are read ahead.
const BUFFER_BYTES: usize = 64 * 1024;
/// The limit for the headers of a response.
const MAX_HEADERS: usize = 256;

/// How many interim responses wait to be passed on; more are dropped.
const MAX_INTERIM: usize = 8;

/// A thread's idle connections to an endpoint.
pub struct ConnectionPool {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// TLS to it; `None`: without TLS.
    pub tls: Option<ServerTls>,
    /// The user that must listen there.
    pub listening_user: Option<u32>,
    idle: RefCell<Vec<UpstreamConnection>>,
    /// Of an endpoint with a host name.
    addresses: KnownAddresses,
}

/// A connection to an upstream. Dropping it closes it.
pub struct UpstreamConnection {
    /// hyper's handle of the connection.
    pub sender: SendRequest<RequestBody>,
    /// interim responses go in here, while a request is sent.
    pub send_interim: Sender<(StatusCode, HeaderMap)>,
    /// The interim responses that came.
    pub interim: Receiver<(StatusCode, HeaderMap)>,
    /// The progress on its socket.
    pub progress: Arc<SocketProgress>,
    /// How long the upstream keeps it when it is idle, if the upstream states that.
    pub keep_alive: Option<Duration>,
    idle_since: Instant,
}

// === impl ConnectionPool ===

impl ConnectionPool {
    /// A pool without connections.
    pub fn new(endpoint: &Endpoint, tls: Option<ServerTls>, listening_user: Option<u32>) -> ConnectionPool {
        ConnectionPool {
            endpoint: endpoint.clone(),
            tls,
            listening_user,
            idle: RefCell::default(),
            addresses: KnownAddresses::default(),
        }
    }

    /// Takes an idle connection that was used within this time.
    pub fn take(&self, max_idle: Duration) -> Option<UpstreamConnection> {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        while idle.last()?.idle_time(now) <= max_idle {
            let connection = idle.pop()?;
            if connection.is_usable(now) {
                return Some(connection);
            }
        }
        None
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// When no server listens there, or none answers in time.
    pub async fn connect(&self, limit: Duration) -> Result<UpstreamConnection, ConnectError> {
        // Only the processes of an application must have a certain user.
        let owner = if self.listening_user.is_some() { PathOwner::Application } else { PathOwner::Operator };
        let stream = connect(&self.endpoint, owner, self.tls.as_ref(), &self.addresses, limit).await?;
        if let Some(user) = self.listening_user {
            stream.check_listening_user(user).map_err(ConnectError::Refused)?;
        }
        let progress = stream.progress();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .max_header_size(BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .title_case_headers(true)
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ConnectError::Refused(std::io::Error::other(error)))?;
        // The request on the connection receives its errors; an idle connection needs no report.
        spawn_local(async move { drop(connection.with_upgrades().await) });
        let (send_interim, interim) = channel(MAX_INTERIM);
        let idle_since = Instant::now();
        Ok(UpstreamConnection { sender, send_interim, interim, progress, keep_alive: None, idle_since })
    }

    /// Keeps a connection for the next request after the end of a response, if it is reusable.
    pub fn give_back(self: &Rc<Self>, mut connection: UpstreamConnection) {
        if connection.sender.is_ready() {
            self.keep(connection);
        } else if !connection.sender.is_closed() {
            let pool = Rc::clone(self);
            spawn_local(async move {
                if let Ok(Ok(())) = timeout(REQUEST_END_TIMEOUT, connection.sender.ready()).await {
                    pool.keep(connection);
                }
            });
        }
    }

    /// Closes connections that have been idle for too long; `false` if the pool has no state left.
    pub fn sweep(&self) -> bool {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|connection| connection.is_usable(now));
        !idle.is_empty() || self.addresses.are_known()
    }

    fn keep(&self, mut connection: UpstreamConnection) {
        connection.idle_since = Instant::now();
        let mut idle = self.idle.borrow_mut();
        if idle.len() == MAX_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }
}

// === impl UpstreamConnection ===

impl UpstreamConnection {
    fn idle_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.idle_since)
    }

    fn is_usable(&self, now: Instant) -> bool {
        let limit = self.keep_alive.map_or(IDLE_TIMEOUT, |stated| IDLE_TIMEOUT.min(stated));
        self.sender.is_ready() && self.idle_time(now) < limit
    }
}

#[cfg(test)]
impl ConnectionPool {
    /// How many connections are idle.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }
}
