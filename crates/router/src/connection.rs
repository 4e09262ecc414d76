//! A client's connection: hyper on a socket that keeps time.
//!
//! No timer is armed for a request. The socket notes when something last happened ([`Clock`]), and the thread looks over
//! its connections four times a second ([`Clock::is_overdue`]): silent between requests (`idle_timeout`), a head that
//! does not come to its end (`header_read_timeout`), a client that does not take its response (`send_timeout`). An
//! overdue connection is closed. hyper answers broken requests itself (400, 431) and closes too.

use crate::access_log::Entry;
use crate::response_body::ResponseBody;
use crate::service;
use crate::socket::{Accepted, Socket, Watched};
use crate::strictness::{Guarded, Refusal};
use crate::thread::Thread;
use howdah_config::Http;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What a connection does, and since when.
pub struct Clock {
    thread: Rc<Thread>,
    listener: u64,
    phase: Cell<Phase>,
    since: Cell<Instant>,
    write_blocked_since: Cell<Option<Instant>>,
    overdue: Cell<bool>,
    draining: Cell<bool>,
    /// Whether a request has come: a connection that was just accepted is owed an answer to its first.
    used: Cell<bool>,
    /// Whether all of the last response has gone to the socket.
    flushed: Cell<bool>,
    /// Whether the last attempt to read found nothing.
    read_blocked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// How many requests have begun.
    requests: Cell<u64>,
    /// How many requests go before one that is refused, and why it is.
    refused: Cell<Option<(u64, Refusal)>>,
    /// It speaks HTTP no more.
    tunnel: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A head has begun.
    Head,
    /// A request is being answered.
    Busy,
}

/// The most bytes of a request's head, and of what is read ahead.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 256;

/// How long a new connection may take to its first request while the router ends.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

/// With more connections than this on a thread, those between two requests give their buffers back: hyper keeps two of
/// 8 KiB for each. (With fewer, making them anew for each request costs more than the memory is worth.)
const CONNECTIONS_WITH_BUFFERS: usize = 256;

/// How a while of serving ended.
enum Ended {
    /// The connection is closed, or is to be.
    Closed(hyper::Result<()>),
    /// It is between two requests, with nothing left to write.
    Idle,
}

/// Serves a connection to its end.
pub async fn serve(thread: Rc<Thread>, accepted: Accepted, listener: u64) {
    let Ok((socket, peer)) = Socket::new(accepted, listener) else { return };
    let clock = Rc::new(Clock::new(&thread, listener));
    let _registered = thread.register(&clock);
    let remote = Rc::clone(&peer.remote_addr);
    let peer = Rc::new(peer);
    let mut guarded = Guarded::new(Watched::new(socket, Rc::clone(&clock)), Rc::clone(&clock));
    let mut result = Ok(());
    while clock.until_readable(&guarded).await {
        let service = service_fn(|request| {
            clock.request_began();
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
                break;
            }
            Ended::Idle => {
                let parts = connection.into_parts();
                guarded = parts.io.into_inner();
                guarded.unread(parts.read_buf);
            }
        }
    }
    // Nobody may be left to say so: the client went away while its request was under way.
    clock.enter(Phase::Idle);
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
        // hyper has answered, or could not: the request never came to a line of its own.
        if error.is_parse() && thread.logs_access() {
            Entry::of_no_request(remote).write();
        }
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
            draining: Cell::new(thread.is_draining(listener)),
            used: Cell::new(false),
            flushed: Cell::new(true),
            read_blocked: Cell::new(false),
            waker: RefCell::default(),
            requests: Cell::new(0),
            refused: Cell::new(None),
            tunnel: Cell::new(false),
        }
    }

    /// The response has been handed out: the connection waits for the next request.
    pub fn request_ended(&self) {
        self.flushed.set(false);
        self.enter(Phase::Idle);
    }

    /// The listener that the connection came from.
    pub fn listener(&self) -> u64 {
        self.listener
    }

    /// Bytes came in, or the end.
    pub fn read(&self, bytes: usize) {
        self.read_blocked.set(false);
        if bytes > 0 && self.phase.get() == Phase::Idle {
            self.enter(Phase::Head);
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
        } else if self.write_blocked_since.get().is_none() {
            self.write_blocked_since.set(Some(Instant::now()));
        }
    }

    /// hyper has written all that it had.
    pub fn flushed(&self) {
        self.flushed.set(true);
    }

    /// The request after this many is refused.
    pub fn refuse(&self, requests: u64, refusal: Refusal) {
        self.refused.set(Some((requests, refusal)));
    }

    /// Why the request that has begun is refused, if it is.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refused.get().filter(|(before, _)| before + 1 == self.requests.get()).map(|(_, refusal)| refusal)
    }

    /// The connection has been switched to another protocol: what comes is looked at no more.
    pub fn becomes_tunnel(&self) {
        self.tunnel.set(true);
    }

    /// Whether it speaks another protocol.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel.get()
    }

    /// Waits until the client sends something; `false` if the connection is to be closed.
    async fn until_readable(&self, socket: &Guarded) -> bool {
        poll_fn(|context| {
            if self.overdue.get() || self.draining.get() && self.may_close() {
                return Poll::Ready(false);
            }
            self.keep_waker(context);
            socket.poll_readable(context).map(|()| true)
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
            return Poll::Ready(Ended::Closed(Ok(())));
        }
        if self.draining.get() && self.may_close() {
            connection.as_mut().finish();
        }
        self.keep_waker(context);
        if let Poll::Ready(result) = connection.poll(context) {
            return Poll::Ready(Ended::Closed(result));
        }
        let idle = self.phase.get() == Phase::Idle && self.flushed.get() && self.read_blocked.get();
        if idle && thread.connections() > CONNECTIONS_WITH_BUFFERS {
            return Poll::Ready(Ended::Idle);
        }
        Poll::Pending
    }

    fn request_began(&self) {
        self.requests.set(self.requests.get() + 1);
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
        if overdue || self.draining.get() {
            self.wake();
        }
    }

    /// Finishes the request under way, and closes.
    pub fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    fn may_close(&self) -> bool {
        self.used.get() || self.since.get().elapsed() > FIRST_REQUEST
    }

    fn is_overdue(&self, now: Instant, limits: &Http) -> bool {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let phase = match self.phase.get() {
            Phase::Idle => late(self.since.get(), limits.idle_timeout),
            Phase::Head => late(self.since.get(), limits.header_read_timeout),
            Phase::Busy => false,
        };
        phase || self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout))
    }

    fn enter(&self, phase: Phase) {
        match (self.phase.replace(phase), phase) {
            (Phase::Busy, Phase::Busy) => {}
            (_, Phase::Busy) => self.thread.load().request_began(),
            (Phase::Busy, _) => self.thread.load().request_ended(),
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
