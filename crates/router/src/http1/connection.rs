//! A client's connection: hyper on a socket that keeps time.
//!
//! No timer is armed for a request. The socket notes when something last happened ([`Clock`]), and the thread looks over
//! its connections four times a second ([`Clock::is_overdue`]): silent between requests (`idle_timeout`), a head that
//! does not come to its end (`header_read_timeout`), a client that does not take its response (`send_timeout`). An
//! overdue connection is closed. hyper answers broken requests itself (400, 431) and closes too. After a 101 the socket
//! goes over to [`tunnel`].

use crate::dispatch::service;
use crate::http1::strictness::{Guarded, Progress, Refusal};
use crate::http1::tunnel;
use crate::net::accept::Entrance;
use crate::net::linger::linger;
use crate::net::socket::{Accepted, Peer, Socket, Transport, Watched};
use crate::net::tls::{self, HandshakeError, Negotiated};
use crate::process::thread::Thread;
use crate::request::incoming::Incoming;
use crate::response::body::ResponseBody;
use crate::response::log_line::Entry;
use howdah_config::Http;
use http::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio_rustls::server::TlsStream;

/// What a connection does, and since when.
pub struct Clock {
    thread: Rc<Thread>,
    listener: u64,
    phase: Cell<Phase>,
    since: Cell<Instant>,
    write_blocked_since: Cell<Option<Instant>>,
    overdue: Cell<bool>,
    draining_since: Cell<Option<Instant>>,
    /// Whether a request has come: a connection that was just accepted is owed an answer to its first.
    used: Cell<bool>,
    /// Whether all of the last response has gone to the socket.
    flushed: Cell<bool>,
    /// Whether the last attempt to read found nothing.
    read_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// What the connection goes on with when hyper is done: the last response was a 101.
    tunnel: Cell<Option<Upgraded>>,
    /// How many requests have begun.
    requests: Cell<u64>,
    /// What the guard last said.
    progress: Cell<Progress>,
    /// Whether the body of the request that began last was read to its end.
    body_ended: Cell<bool>,
    /// How many requests go before one that is refused, and why it is.
    refused: Cell<Option<(u64, Refusal)>>,
    /// Whether somebody waits for the end of the request.
    is_awaited: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// A request is being answered.
    Busy,
    /// It is no longer HTTP.
    Tunnel,
}

/// The most bytes of a request's head, and of what is read ahead.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 256;

/// How long a new connection may take to its first request while the router ends.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// How long the head of a request that has begun may take when its listener was removed, or the router ends.
const LAST_HEAD: Duration = Duration::from_secs(10);

/// With more connections than this on a thread, those between two requests give their buffers back: hyper keeps two of
/// 8 KiB for each. (With fewer, making them anew for each request costs more than the memory is worth.)
const CONNECTIONS_WITH_BUFFERS: usize = 256;

/// How a while of serving ended.
enum Ended {
    /// The connection is closed, or is to be.
    Closed(hyper::Result<()>),
    /// It is between two requests, with nothing left to write.
    Idle,
    /// Its time is over.
    Overdue,
}

/// Serves a connection to its end.
pub async fn serve(thread: Rc<Thread>, accepted: Accepted, entrance: Entrance) {
    let Ok((transport, mut peer)) = Transport::new(accepted, entrance.listener) else { return };
    let clock = Rc::new(Clock::new(&thread, entrance.listener));
    let _registered = thread.register(&clock);
    let remote = Rc::clone(&peer.remote_addr);
    let socket = match entrance.tls {
        None => Socket::Plain(transport),
        Some(config) => match clock.shake_hands(transport, config, &peer).await {
            Some(stream) => {
                peer.tls = Some(Negotiated::of(stream.get_ref().1));
                Socket::Tls(Box::new(stream))
            }
            None => return,
        },
    };
    let peer = Rc::new(peer);
    let mut waiting = Some(Guarded::new(Watched::new(socket, Rc::clone(&clock)), Rc::clone(&clock)));
    let mut result = Ok(());
    while let Some(guarded) = waiting.take() {
        if !clock.until_readable(&guarded).await {
            guarded.into_inner().say_goodbye().await;
            break;
        }
        let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            clock.request_began();
            let request = request.map(|body| Incoming::new(body, &clock));
            let answer = Box::pin(service::answer(Rc::clone(&thread), Rc::clone(&peer), Rc::clone(&clock), request));
            async move { Ok::<hyper::Response<ResponseBody>, Infallible>(answer.await) }
        });
        let mut connection = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(guarded), service);
        match poll_fn(|context| clock.poll_connection(&thread, Pin::new(&mut connection), context)).await {
            Ended::Closed(ended) => {
                result = ended;
                let parts = connection.into_parts();
                let mut guarded = parts.io.into_inner();
                if result.is_ok()
                    && let Some(upstream) = clock.begin_tunnel()
                {
                    guarded.unread(&parts.read_buf);
                    tunnel::run(&clock, guarded.into_inner(), upstream).await;
                } else if guarded.is_shut_too_early() {
                    clock.enter(Phase::Idle);
                    linger(&mut guarded.into_inner()).await;
                }
            }
            Ended::Idle => {
                let parts = connection.into_parts();
                // Bytes that hyper kept would never be looked at again.
                waiting = Some(parts.io.into_inner()).filter(|_| parts.read_buf.is_empty());
                debug_assert!(waiting.is_some(), "between two requests there is nothing to read");
            }
            Ended::Overdue => connection.into_parts().io.into_inner().into_inner().say_goodbye().await,
        }
    }
    // Nobody may be left to say so: the client went away while its request was under way.
    clock.enter(Phase::Idle);
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
        if error.is_parse() {
            // As hyper has answered it.
            let status = match error.is_parse_too_large() {
                true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                false => StatusCode::BAD_REQUEST,
            };
            log_no_request(&thread, &remote, status);
        }
    }
}

/// The line of an answer to what was no request: it never came to one of its own.
fn log_no_request(thread: &Thread, remote: &str, status: StatusCode) {
    let view = thread.view();
    let log = view.configuration().access_log.as_ref();
    if let Some(entry) = log.and_then(|log| Entry::of_no_request(log, remote, status)) {
        entry.write();
    }
}

// === impl Clock ===

impl Clock {
    fn new(thread: &Rc<Thread>, listener: u64) -> Clock {
        Clock {
            thread: Rc::clone(thread),
            listener,
            phase: Cell::new(Phase::Idle),
            since: Cell::new(Instant::now()),
            write_blocked_since: Cell::new(None),
            overdue: Cell::new(false),
            draining_since: Cell::new(thread.is_draining(listener).then(Instant::now)),
            used: Cell::new(false),
            flushed: Cell::new(true),
            read_blocked: Cell::new(false),
            waker: RefCell::default(),
            tunnel: Cell::default(),
            requests: Cell::new(0),
            progress: Cell::default(),
            body_ended: Cell::new(true),
            refused: Cell::new(None),
            is_awaited: Cell::new(false),
        }
    }

    /// The response has been handed out: the connection waits for the next request.
    pub fn request_ended(&self) {
        self.flushed.set(false);
        self.enter(Phase::Idle);
        if self.is_awaited.take() {
            self.wake();
        }
    }

    /// The listener that the connection came from.
    pub fn listener(&self) -> u64 {
        self.listener
    }

    /// Bytes came in, or the end.
    pub fn read(&self, bytes: usize) {
        self.read_blocked.set(false);
        match self.phase.get() {
            Phase::Idle if bytes > 0 => self.enter(Phase::Head),
            Phase::Tunnel => self.since.set(Instant::now()),
            _ => {}
        }
    }

    /// There was nothing to read.
    pub fn read_blocked(&self) {
        self.read_blocked.set(true);
    }

    /// Bytes went out, or did not.
    pub fn wrote(&self, written: bool) {
        if written {
            self.write_blocked_since.set(None);
            if self.phase.get() == Phase::Tunnel {
                self.since.set(Instant::now());
            }
        } else if self.write_blocked_since.get().is_none() {
            self.write_blocked_since.set(Some(Instant::now()));
        }
    }

    /// hyper has written all that it had.
    pub fn flushed(&self) {
        self.flushed.set(true);
    }

    /// Encrypts the connection. A client may take as long for it as for the head of a request.
    async fn shake_hands(
        &self,
        transport: Transport,
        config: Arc<ServerConfig>,
        peer: &Peer,
    ) -> Option<TlsStream<Transport>> {
        self.enter(Phase::Head);
        let mut handshake = pin!(tls::handshake(transport, config));
        let result = poll_fn(|context| {
            if self.overdue.get() || self.is_draining() && self.may_close() {
                return Poll::Ready(None);
            }
            self.keep_waker(context);
            handshake.as_mut().poll(context).map(Some)
        });
        let reason = match result.await {
            Some(Ok(stream)) => {
                self.enter(Phase::Idle);
                return Some(stream);
            }
            Some(Err(error)) => {
                if matches!(error, HandshakeError::PlainHttp) {
                    log_no_request(&self.thread, &peer.remote_addr, StatusCode::BAD_REQUEST);
                }
                error.to_string()
            }
            None => "it took too long".to_owned(),
        };
        let client = &peer.remote_addr;
        tracing::debug!(%client, port = peer.remote_port, reason, "a TLS handshake failed");
        None
    }

    /// The request after this many is refused.
    pub fn refuse(&self, requests: u64, refusal: Refusal) {
        self.refused.set(Some((requests, refusal)));
    }

    /// Why the request that has begun is refused, if it is.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refused.get().filter(|(before, _)| before + 1 == self.requests.get()).map(|(_, refusal)| refusal)
    }

    /// The guard says how far it is.
    pub fn guard_is_at(&self, progress: Progress) {
        self.progress.set(progress);
    }

    /// Whether the request that has begun has come to its end.
    pub fn has_come(&self) -> bool {
        self.progress.get().whole >= self.requests.get()
    }

    fn is_between_requests(&self) -> bool {
        self.progress.get().between.is_some_and(|requests| self.has_read(requests))
    }

    /// The body of the request that has begun was read to its end.
    pub fn body_ended(&self) {
        self.body_ended.set(true);
    }

    /// Whether so many requests have begun, and their bodies were read.
    pub fn has_read(&self, requests: u64) -> bool {
        self.requests.get() == requests && self.body_ended.get()
    }

    /// Whether so many requests have come, and all have been answered. If not, the connection is woken when they have.
    pub fn has_answered(&self, requests: u64) -> bool {
        let has_answered = self.requests.get() == requests && self.phase.get() != Phase::Busy;
        self.is_awaited.set(!has_answered);
        has_answered
    }

    /// Waits until the client sends something; `false` if the connection is to be closed.
    async fn until_readable(&self, socket: &Guarded) -> bool {
        poll_fn(|context| {
            if self.overdue.get() {
                return Poll::Ready(false);
            }
            self.keep_waker(context);
            let readable = socket.poll_readable(context);
            if readable.is_pending() && self.is_draining() && self.may_close() {
                return Poll::Ready(false);
            }
            readable.map(|()| true)
        })
        .await
    }

    fn poll_connection<C: Serving>(
        &self,
        thread: &Thread,
        mut connection: Pin<&mut C>,
        context: &mut Context<'_>,
    ) -> Poll<Ended> {
        if self.overdue.get() {
            return Poll::Ready(Ended::Overdue);
        }
        let ends = self.is_draining() && self.may_close();
        if ends && self.phase.get() == Phase::Busy {
            // The answer says that it is the last.
            connection.as_mut().finish();
        }
        self.keep_waker(context);
        let mut polled = connection.as_mut().poll(context);
        if ends && polled.is_pending() && self.phase.get() == Phase::Idle {
            // A request that had arrived, and be it in part, would have been seen.
            connection.as_mut().finish();
            polled = connection.poll(context);
        }
        if let Poll::Ready(result) = polled {
            return Poll::Ready(Ended::Closed(result));
        }
        let may_be_idle = self.phase.get() == Phase::Idle && self.flushed.get() && self.read_blocked.get();
        if may_be_idle && thread.connections() > CONNECTIONS_WITH_BUFFERS && self.is_between_requests() {
            return Poll::Ready(Ended::Idle);
        }
        Poll::Pending
    }

    fn request_began(&self) {
        self.requests.set(self.requests.get() + 1);
        self.body_ended.set(false);
        self.enter(Phase::Busy);
        self.used.set(true);
    }

    fn keep_waker(&self, context: &Context<'_>) {
        match &mut *self.waker.borrow_mut() {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    /// Closes the connection if its time is over.
    pub fn check(&self, now: Instant, limits: &Http) {
        let overdue = self.is_overdue(now, limits);
        self.overdue.set(overdue);
        if overdue || self.is_draining() {
            self.wake();
        }
    }

    /// Since when it waits for another request, if it does.
    pub fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.phase.get() == Phase::Idle && self.used.get() && self.flushed.get() && !self.is_draining();
        is_idle.then(|| self.since.get())
    }

    /// Finishes the request under way, and closes.
    pub fn drain(&self) {
        if !self.is_draining() {
            self.draining_since.set(Some(Instant::now()));
        }
        self.wake();
    }

    /// The response is a 101: what the connection goes on with.
    pub fn keep_tunnel(&self, upstream: Option<Upgraded>) {
        self.tunnel.set(upstream);
    }

    fn begin_tunnel(&self) -> Option<Upgraded> {
        let upstream = self.tunnel.take()?;
        self.enter(Phase::Tunnel);
        Some(upstream)
    }

    /// Waits until the connection is to be closed.
    pub async fn until_overdue(&self) {
        poll_fn(|context| {
            self.keep_waker(context);
            if self.overdue.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn is_draining(&self) -> bool {
        self.draining_since.get().is_some()
    }

    fn may_close(&self) -> bool {
        self.used.get() || self.since.get().elapsed() > FIRST_REQUEST
    }

    fn is_overdue(&self, now: Instant, limits: &Http) -> bool {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let phase = match self.phase.get() {
            Phase::Idle => late(self.since.get(), limits.idle_timeout),
            Phase::Head => {
                late(self.since.get(), limits.header_read_timeout)
                    || self.draining_since.get().is_some_and(|since| late(since, LAST_HEAD))
            }
            Phase::Busy => false,
            Phase::Tunnel => {
                let draining_since = self.draining_since.get();
                late(self.since.get(), tunnel::IDLE_TIMEOUT)
                    || draining_since.is_some_and(|since| late(since, tunnel::GRACE))
            }
        };
        phase || self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout))
    }

    fn enter(&self, phase: Phase) {
        match (self.phase.replace(phase), phase) {
            (Phase::Busy, Phase::Busy) => {}
            (_, Phase::Busy) => self.thread.load().request_began(),
            (_, Phase::Tunnel) => self.thread.load().tunnel_began(),
            (Phase::Busy | Phase::Tunnel, _) => self.thread.load().request_ended(),
            _ => {}
        }
        self.since.set(Instant::now());
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// hyper's connection, whose type has no name.
trait Serving: Future<Output = hyper::Result<()>> {
    /// Answers what has come, then closes.
    fn finish(self: Pin<&mut Self>);
}

impl<S> Serving for http1::Connection<TokioIo<Guarded>, S>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = ResponseBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
