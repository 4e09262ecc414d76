//! The clock of a FastCGI connection: what it does, and since when.
//!
//! As with HTTP/1, no timer is armed for a request: the thread checks the clock four times a second. A connection without
//! a request ends after `idle_timeout`; one whose request has variables that are not complete within
//! `header_read_timeout`, or whose web server reads nothing for `send_timeout`, is closed.

use crate::net::load::Load;
use crate::protocols::connection::clock::ConnectionClock;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::task_waker::TaskWaker;
use howdah_config::Http;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

/// The clock of one connection, and of its current request.
pub struct FastCgiClock {
    load: Arc<Load>,
    listener: u64,
    phase: Cell<Phase>,
    /// When the phase began.
    since: Cell<Instant>,
    /// When the first record of the current request came.
    request_since: Cell<Instant>,
    write_blocked_since: Cell<Option<Instant>>,
    overdue: Cell<Option<&'static str>>,
    is_draining: Cell<bool>,
    /// Whether a request has come. A connection that was just accepted still gets the answer to its first request.
    used: Cell<bool>,
    /// Why the current request is refused, if it is.
    refusal: Cell<Option<HeadRefusal>>,
    /// Dropped when the current request ends.
    held: RefCell<Vec<Box<dyn Any>>>,
    waker: TaskWaker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between requests.
    Idle,
    /// A request has begun, and its variables are not complete.
    Head,
    /// A request is being answered.
    Busy,
}

/// How long a new connection may take to its first request while the router drains.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

// === impl FastCgiClock ===

impl FastCgiClock {
    /// The clock of a connection that this listener accepted. A draining connection ends after its request.
    pub fn new(load: Arc<Load>, listener: u64, is_draining: bool) -> FastCgiClock {
        FastCgiClock {
            load,
            listener,
            phase: Cell::new(Phase::Idle),
            since: Cell::new(Instant::now()),
            request_since: Cell::new(Instant::now()),
            write_blocked_since: Cell::new(None),
            overdue: Cell::new(None),
            is_draining: Cell::new(is_draining),
            used: Cell::new(false),
            refusal: Cell::new(None),
            held: RefCell::default(),
            waker: TaskWaker::default(),
        }
    }

    // --- Notices from the connection

    /// The first record of a request has come.
    pub fn head_began(&self) {
        self.enter(Phase::Head);
        self.request_since.set(self.since.get());
    }

    /// The request is to be answered, or refused.
    pub fn request_began(&self, refusal: Option<HeadRefusal>) {
        self.refusal.set(refusal);
        self.used.set(true);
        self.enter(Phase::Busy);
    }

    /// The request has ended, with or without a response.
    pub fn connection_waits(&self) {
        self.held.take();
        self.enter(Phase::Idle);
    }

    /// Bytes went out, or could not.
    pub fn wrote(&self, written: bool) {
        if written {
            self.write_blocked_since.set(None);
        } else if self.write_blocked_since.get().is_none() {
            self.write_blocked_since.set(Some(Instant::now()));
        }
    }

    // --- A request's view

    /// When the first record of the request came.
    pub fn request_since(&self) -> Instant {
        self.request_since.get()
    }

    /// Why the request is refused, if it is.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        self.refusal.get()
    }

    /// Keeps a value until the request ends.
    pub fn hold(&self, value: impl Any) {
        self.held.borrow_mut().push(Box::new(value));
    }

    /// The response has been handed out.
    pub fn request_ended(&self) {
        self.held.take();
    }

    // --- The connection

    /// Why the connection is to be closed at once, if it is. Wakes this task when that changes.
    pub fn poll_overdue(&self, context: &Context<'_>) -> Option<&'static str> {
        self.waker.keep(context);
        self.overdue.get()
    }

    /// Whether the connection ends after its current request.
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Whether the connection is draining, and has no answer outstanding that its web server may expect.
    pub fn may_end(&self) -> bool {
        let is_awaited = !self.used.get() && self.since.get().elapsed() <= FIRST_REQUEST;
        self.is_draining.get() && self.phase.get() == Phase::Idle && !is_awaited
    }

    fn overdue_reason(&self, now: Instant, limits: &Http) -> Option<&'static str> {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        if self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout)) {
            return Some("the web server does not read its response");
        }
        match self.phase.get() {
            Phase::Idle if late(self.since.get(), limits.idle_timeout) => Some(IDLE),
            Phase::Head if late(self.since.get(), limits.header_read_timeout) => {
                Some("the variables of a request took too long")
            }
            _ => None,
        }
    }

    fn enter(&self, phase: Phase) {
        match (self.phase.replace(phase), phase) {
            (Phase::Busy, Phase::Busy) => {}
            (_, Phase::Busy) => self.load.request_began(),
            (Phase::Busy, _) => self.load.request_ended(),
            _ => {}
        }
        // A request that is being answered has no limit here.
        if phase != Phase::Busy {
            self.since.set(Instant::now());
        }
    }
}

/// The end of a connection that has nothing to do is no trouble.
pub const IDLE: &str = "it waits for another request";

impl ConnectionClock for FastCgiClock {
    fn listener(&self) -> u64 {
        self.listener
    }

    fn check(&self, now: Instant, limits: &Http) {
        self.overdue.set(self.overdue_reason(now, limits));
        if self.overdue.get().is_some() || self.is_draining.get() {
            self.waker.wake();
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.phase.get() == Phase::Idle && self.used.get() && !self.is_draining.get();
        is_idle.then(|| self.since.get())
    }

    fn drain(&self) {
        self.is_draining.set(true);
        self.waker.wake();
    }
}

impl Drop for FastCgiClock {
    /// A connection that ended by a panic has an open request.
    fn drop(&mut self) {
        if self.phase.get() == Phase::Busy {
            self.load.request_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::router::RouterLoad;

    #[test]
    fn each_phase_has_its_limit() {
        let clock = FastCgiClock::new(Arc::default(), 1, false);
        let limits = Http::default();
        let reason = |after: Duration| clock.overdue_reason(Instant::now() + after, &limits);
        let second = Duration::from_secs(1);
        assert_eq!(reason(limits.idle_timeout - second), None);
        assert_eq!(reason(limits.idle_timeout + second), Some(IDLE));
        clock.head_began();
        assert!(reason(limits.header_read_timeout + second).is_some_and(|reason| reason.contains("variables")));
        clock.request_began(None);
        assert_eq!(reason(Duration::from_secs(100_000)), None, "a request that is being answered has no limit here");
        clock.wrote(false);
        assert!(reason(limits.send_timeout + second).is_some_and(|reason| reason.contains("does not read")));
        clock.wrote(true);
        assert_eq!(reason(limits.send_timeout + second), None);
    }

    #[test]
    fn a_draining_connection_ends_between_requests() {
        let clock = FastCgiClock::new(Arc::default(), 1, true);
        assert!(!clock.may_end(), "its first request may be on its way");
        clock.request_began(None);
        assert!(!clock.may_end());
        clock.connection_waits();
        assert!(clock.may_end());
    }

    #[test]
    fn a_clock_that_is_dropped_in_a_request_leaves_no_count() {
        let load = Arc::new(Load::default());
        let open = load.connection_began();
        let clock = FastCgiClock::new(Arc::clone(&load), 1, false);
        clock.request_began(None);
        drop((clock, open));
        let mut report = RouterLoad::default();
        load.add_to(&mut report);
        assert_eq!((report.connections_active, report.requests_total), (0, 1));
    }
}
