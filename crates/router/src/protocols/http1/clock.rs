//! A connection's clock: what the connection does, and since when.
//!
//! No timer is armed for a request. The socket notifies the clock of reads and writes, and the thread checks the clocks
//! of its connections four times a second ([`Clock::check`]): no request (`idle_timeout`), a head that is not complete
//! in time (`header_read_timeout`), a client that does not take its response (`send_timeout`). An overdue connection is
//! closed; a late head is answered 408 before.
//!
//! The clock also knows whether the connection is between two requests, and counts its requests in the thread's [`Load`].

use crate::net::load::Load;
use crate::protocols::connection::clock::ConnectionClock;
use crate::protocols::connection::heads::large_head::LargeHead;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::limits::{TUNNEL_GRACE, TUNNEL_IDLE_TIMEOUT};
use crate::protocols::connection::task_waker::TaskWaker;
use crate::protocols::connection::turn::WORK_OF_TURN;
use crate::protocols::http1::interim::InterimResponses;
use howdah_config::Http;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::Upgraded;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The clock of one connection.
pub struct Clock {
    load: Arc<Load>,
    listener: u64,
    phase: Cell<Phase>,
    /// When the phase began, or its last bytes came; not set by [`Phase::Busy`].
    since: Cell<Instant>,
    /// When the first byte of the current request came.
    request_since: Cell<Instant>,
    write_blocked_since: Cell<Option<Instant>>,
    overdue: Cell<bool>,
    /// The head of a request is not complete in time: the guard refuses it, so that the client gets an answer.
    has_late_head: Cell<bool>,
    draining_since: Cell<Option<Instant>>,
    /// Whether a request has come. A connection that was just accepted still gets the answer to its first request.
    used: Cell<bool>,
    /// Whether the whole last response has gone to the socket.
    flushed: Cell<bool>,
    /// Whether the last attempt to read found nothing.
    read_blocked: Cell<bool>,
    /// How many bytes of heads came in this turn of the event loop. hyper answers all requests that have come in one turn.
    head_bytes: Cell<usize>,
    waker: TaskWaker,
    /// The upstream's connection, if the last response was a 101.
    tunnel: Cell<Option<Upgraded>>,
    /// Whether a side of the tunnel has ended.
    tunnel_has_ended: Cell<bool>,
    /// Dropped when the current request ends, or the tunnel.
    held: RefCell<Vec<Box<dyn Any>>>,
    /// The memory of the response's head, until hyper has written it.
    head: Cell<Option<Arc<LargeHead>>>,
    /// Heads that go out before the response to the current request.
    interim: InterimResponses,
    /// How many requests have begun.
    requests: Cell<u64>,
    /// The guard's last report.
    progress: Cell<GuardProgress>,
    /// Whether the body of the last request was read to its end.
    body_ended: Cell<bool>,
    /// The refused request: how many came before it, and why it is refused.
    refused: Cell<Option<(u64, HeadRefusal)>>,
    /// Whether the guard waits for the end of the request.
    is_awaited: Cell<bool>,
}

/// How far a connection's requests have passed the guard.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuardProgress {
    /// How many requests have passed to their end.
    pub whole: u64,
    /// How many requests have passed in all, if the last one has passed to its end, nothing follows it, and hyper has not
    /// ended the connection. Once these requests are answered and their bodies are read, the next byte begins a request:
    /// only then may another parser take the connection over.
    pub between: Option<u64>,
    /// Whether the guard holds a part of a head back.
    pub holds_head: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A TLS handshake.
    Handshake,
    /// Between requests.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is being answered.
    Busy,
    /// The connection is a tunnel.
    Tunnel,
}

/// How long a new connection may take to its first request while the router drains.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// How long the head of a request that has begun may take when its listener was removed, or the router drains.
const LAST_HEAD: Duration = Duration::from_secs(10);

// === impl Clock ===

impl Clock {
    /// The clock of a connection that this listener accepted. A draining connection ends after its request.
    pub fn new(load: Arc<Load>, listener: u64, is_draining: bool) -> Clock {
        Clock {
            load,
            listener,
            phase: Cell::new(Phase::Idle),
            since: Cell::new(Instant::now()),
            request_since: Cell::new(Instant::now()),
            write_blocked_since: Cell::new(None),
            overdue: Cell::new(false),
            has_late_head: Cell::new(false),
            draining_since: Cell::new(is_draining.then(Instant::now)),
            used: Cell::new(false),
            flushed: Cell::new(true),
            read_blocked: Cell::new(false),
            head_bytes: Cell::new(0),
            waker: TaskWaker::default(),
            tunnel: Cell::default(),
            tunnel_has_ended: Cell::new(false),
            held: RefCell::default(),
            head: Cell::default(),
            interim: InterimResponses::default(),
            requests: Cell::new(0),
            progress: Cell::default(),
            body_ended: Cell::new(true),
            refused: Cell::new(None),
            is_awaited: Cell::new(false),
        }
    }

    /// How many connections its thread has.
    pub fn connections_of_thread(&self) -> u64 {
        self.load.connections()
    }

    // --- Notices from the socket

    /// Bytes came in, or the end.
    pub fn read(&self, bytes: usize) {
        self.read_blocked.set(false);
        if matches!(self.phase.get(), Phase::Idle | Phase::Head) {
            self.head_bytes.set(self.head_bytes.get() + bytes);
        }
        match self.phase.get() {
            Phase::Idle if bytes > 0 => self.enter(Phase::Head),
            Phase::Tunnel if bytes == 0 => self.tunnel_side_ended(),
            Phase::Tunnel => self.since.set(Instant::now()),
            _ => {}
        }
    }

    /// The client, or the server, has ended its side of the tunnel.
    pub fn tunnel_side_ended(&self) {
        self.since.set(Instant::now());
        self.tunnel_has_ended.set(true);
    }

    /// There was nothing to read.
    pub fn read_blocked(&self) {
        self.read_blocked.set(true);
        self.head_bytes.set(0);
    }

    /// Whether the heads that came are enough work for one turn of the event loop. If so, another turn begins. A connection that
    /// drains reads all that has come at once, and then ends.
    pub fn take_turn_end(&self) -> bool {
        let has_ended = self.head_bytes.get() >= WORK_OF_TURN && !self.is_draining();
        if has_ended {
            self.head_bytes.set(0);
        }
        has_ended
    }

    /// Bytes went out, or could not.
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

    /// hyper has written everything that it had. The time of a head that began to come behind its request begins now.
    pub fn flushed(&self) {
        self.flushed.set(true);
        drop(self.head.take());
        if self.is_idle() && self.progress.get().holds_head {
            self.enter(Phase::Head);
        }
    }

    // --- Notices from the guard

    /// The request after this number of requests is refused.
    pub fn refuse(&self, requests: u64, refusal: HeadRefusal) {
        self.refused.set(Some((requests, refusal)));
    }

    /// The guard's progress.
    pub fn guard_is_at(&self, progress: GuardProgress) {
        self.progress.set(progress);
    }

    /// Whether the head of a request is late since the last call.
    pub fn take_late_head(&self) -> bool {
        self.has_late_head.take()
    }

    /// Whether exactly this number of requests has begun, and their bodies were read.
    pub fn has_read(&self, requests: u64) -> bool {
        self.requests.get() == requests && self.body_ended.get()
    }

    /// Whether exactly this number of requests has come, and all are answered. If not, the connection is woken when they
    /// are.
    pub fn has_answered(&self, requests: u64) -> bool {
        let has_answered = self.requests.get() == requests && self.phase.get() != Phase::Busy;
        self.is_awaited.set(!has_answered);
        has_answered
    }

    // --- A request

    /// hyper has read a request's head. `takes_interim`: the client understands interim responses.
    pub fn request_began(&self, takes_interim: bool) {
        self.interim.request_began(takes_interim);
        self.requests.set(self.requests.get() + 1);
        self.body_ended.set(false);
        self.request_since.set(if self.phase.get() == Phase::Head { self.since.get() } else { Instant::now() });
        self.enter(Phase::Busy);
        self.used.set(true);
    }

    /// When the first byte of the current request came.
    pub fn request_since(&self) -> Instant {
        self.request_since.get()
    }

    /// Why the current request is refused, if it is.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        self.refused.get().filter(|(before, _)| before + 1 == self.requests.get()).map(|(_, refusal)| refusal)
    }

    /// Sends an interim response to the current request, such as 103, before its response. It is dropped where the
    /// client does not understand it, or does not take what was sent before.
    pub fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        if self.is_busy() && self.flushed.get() && self.write_blocked_since.get().is_none() {
            self.interim.queue(status, headers);
            self.waker.wake();
        }
    }

    /// The interim responses that are to be written before all other bytes.
    pub fn interim(&self) -> &InterimResponses {
        &self.interim
    }

    /// Whether the current request has arrived to its end.
    pub fn has_come(&self) -> bool {
        self.progress.get().whole >= self.requests.get()
    }

    /// The body of the current request was read to its end.
    pub fn body_ended(&self) {
        self.body_ended.set(true);
    }

    /// Keeps a value until the current request ends; until the end of the tunnel that it may become.
    pub fn hold(&self, value: impl Any) {
        self.held.borrow_mut().push(Box::new(value));
    }

    /// The memory of the head of the response that hyper gets now, if it is large.
    pub fn keep_head(&self, head: Option<Arc<LargeHead>>) {
        if head.is_some() {
            self.head.set(head);
        }
    }

    /// The response has been handed out: the connection waits for the next request.
    pub fn request_ended(&self) {
        self.flushed.set(false);
        let tunnel = self.tunnel.take();
        if tunnel.is_none() {
            self.held.take();
        }
        self.tunnel.set(tunnel);
        self.enter(Phase::Idle);
        if self.is_awaited.take() {
            self.waker.wake();
        }
    }

    /// The response is a 101: the connection becomes a tunnel to the upstream.
    pub fn keep_tunnel(&self, upstream: Upgraded) {
        self.tunnel.set(Some(upstream));
    }

    // --- The connection

    /// Waits for the end of a handshake. A client may take as long for it as for the head of a request. `None` if its time
    /// is over.
    pub async fn handshake<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        self.enter(Phase::Handshake);
        let mut handshake = pin!(handshake);
        let result = poll_fn(|context| {
            if self.overdue.get() || self.may_end() {
                return Poll::Ready(None);
            }
            self.keep_waker(context);
            handshake.as_mut().poll(context).map(Some)
        })
        .await;
        if result.is_some() {
            self.enter(Phase::Idle);
        }
        result
    }

    /// The tunnel that the last response asked for, which begins now.
    pub fn begin_tunnel(&self) -> Option<Upgraded> {
        let upstream = self.tunnel.take()?;
        self.enter(Phase::Tunnel);
        Some(upstream)
    }

    /// The current request has ended without a response: the client left, or the connection lingers.
    pub fn become_idle(&self) {
        self.held.take();
        self.enter(Phase::Idle);
    }

    /// Whether the connection is answering a request.
    pub fn is_busy(&self) -> bool {
        self.phase.get() == Phase::Busy
    }

    /// Whether the connection waits for a request.
    pub fn is_idle(&self) -> bool {
        self.phase.get() == Phase::Idle
    }

    /// Whether the connection is between two requests, with nothing left to read or to write.
    pub fn is_between_requests(&self) -> bool {
        self.is_idle()
            && self.flushed.get()
            && self.read_blocked.get()
            && self.progress.get().between.is_some_and(|requests| self.has_read(requests))
    }

    /// Whether the connection is draining, and has no answer outstanding that its client may expect.
    pub fn may_end(&self) -> bool {
        self.is_draining() && (self.used.get() || self.since.get().elapsed() > FIRST_REQUEST)
    }

    /// Whether the connection is to be closed: its time is over.
    pub fn is_overdue(&self) -> bool {
        self.overdue.get()
    }

    /// Waits until the connection's time is over.
    pub async fn until_overdue(&self) {
        poll_fn(|context| {
            self.keep_waker(context);
            if self.overdue.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Wakes this task when the connection is overdue, or to be drained.
    pub fn keep_waker(&self, context: &Context<'_>) {
        self.waker.keep(context);
    }

    /// Whether the connection ends after its current request.
    pub fn is_draining(&self) -> bool {
        self.draining_since.get().is_some()
    }

    fn is_late(&self, now: Instant, limits: &Http) -> bool {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let phase = match self.phase.get() {
            Phase::Idle => late(self.since.get(), limits.idle_timeout),
            Phase::Handshake | Phase::Head => {
                late(self.since.get(), limits.header_read_timeout)
                    || self.draining_since.get().is_some_and(|since| late(since, LAST_HEAD))
            }
            Phase::Busy => false,
            Phase::Tunnel => {
                // A client that has ended its side may have left, and one may wait without end for a server that has ended.
                let limit = if self.tunnel_has_ended.get() { TUNNEL_GRACE } else { TUNNEL_IDLE_TIMEOUT };
                late(self.since.get(), limit)
                    || self.draining_since.get().is_some_and(|since| late(since, TUNNEL_GRACE))
            }
        };
        phase || self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout))
    }

    fn enter(&self, phase: Phase) {
        match (self.phase.replace(phase), phase) {
            (Phase::Busy, Phase::Busy) => {}
            (_, Phase::Busy) => self.load.request_began(),
            (_, Phase::Tunnel) => self.load.tunnel_began(),
            (Phase::Busy | Phase::Tunnel, _) => self.load.request_ended(),
            _ => {}
        }
        self.has_late_head.set(false);
        // A request that is being answered has no limit here.
        if phase != Phase::Busy {
            self.since.set(Instant::now());
        }
    }
}

impl ConnectionClock for Clock {
    fn listener(&self) -> u64 {
        self.listener
    }

    /// Ends the connection if its time is over. The head of a request that is late is refused first.
    fn check(&self, now: Instant, limits: &Http) {
        let is_late = self.is_late(now, limits);
        // A refusal that the guard has not noticed since the last check would never be sent.
        let refuses = is_late && self.phase.get() == Phase::Head && !self.has_late_head.get();
        self.has_late_head.set(refuses);
        self.overdue.set(is_late && !refuses);
        if is_late || self.is_draining() {
            self.waker.wake();
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.is_idle() && self.used.get() && self.flushed.get() && !self.is_draining();
        is_idle.then(|| self.since.get())
    }

    fn drain(&self) {
        if !self.is_draining() {
            self.draining_since.set(Some(Instant::now()));
        }
        self.waker.wake();
    }
}

impl Drop for Clock {
    /// A connection that ended by a panic has an open request or tunnel.
    fn drop(&mut self) {
        if matches!(self.phase.get(), Phase::Busy | Phase::Tunnel) {
            self.load.request_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::router::RouterLoad;

    #[test]
    fn a_clock_that_is_dropped_in_a_request_leaves_no_count() {
        let load = Arc::new(Load::default());
        let open = load.connection_began();
        let clock = Clock::new(Arc::clone(&load), 1, false);
        clock.request_began(true);
        drop(clock);
        let tunnel = Clock::new(Arc::clone(&load), 1, false);
        tunnel.enter(Phase::Tunnel);
        drop((tunnel, open));
        let mut report = RouterLoad::default();
        load.add_to(&mut report);
        assert_eq!((report.connections_accepted, report.connections_closed), (1, 1));
        assert_eq!((report.connections_active, report.requests_total), (0, 1));
    }
}
