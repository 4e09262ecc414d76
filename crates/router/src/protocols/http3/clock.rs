//! The clock of an HTTP/3 connection: how many requests it has, since when there are none, and how it ends.
//!
//! QUIC itself notices a client that is gone ([`settings`](crate::protocols::http3::settings)). A connection without requests ends
//! after `idle_timeout`, with GOAWAY. A stream that does not go on has limits of its own
//! ([`stream`](crate::protocols::http3::stream)).
//!
//! The account bounds what a client may cause that is of no use: requests that it cancels, tiny frames, streams without a
//! request. Requests, and time, add points.

use crate::net::connection_limit::{ConnectionLimit, RequestPermit};
use crate::net::load::Load;
use crate::protocols::connection::account::Account;
use crate::protocols::connection::clock::ConnectionClock;
use crate::protocols::connection::heads::head_memory::{HeadMemory, HeldHead};
use crate::protocols::connection::open_requests::OpenRequests;
use crate::protocols::connection::rejection::Excess;
use crate::protocols::http3::send_grant::{LEAST_SEND_BYTES, SendGrant};
use crate::protocols::http3::send_order::SendOrder;
use howdah_config::Http;
use http::request::Parts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The clock of one connection.
pub struct QuicClock {
    listener: u64,
    /// `settings/http/send_timeout` at the last check.
    send_timeout: Cell<Duration>,
    /// `settings/http/header_read_timeout` at the last check.
    header_read_timeout: Cell<Duration>,
    /// A response counts until the client has confirmed all of it.
    requests: OpenRequests,
    /// Whether the handshake is complete: what came before might be a copy that another sent (0-RTT).
    is_confirmed: Cell<bool>,
    confirmed: Notify,
    /// How many bytes of responses were passed on to QUIC.
    sent: Cell<u64>,
    send_order: SendOrder,
    head_memory: Rc<HeadMemory>,
    /// The limit of descriptors.
    limit: Arc<ConnectionLimit>,
    /// Whether a head was refused that had not come whole.
    has_refused: Cell<bool>,
    /// How much of responses may wait for the client, while there are requests.
    send_grant: RefCell<Option<SendGrant>>,
    account: RefCell<Account>,
    /// How the connection ends, and since when that is known.
    ending: Cell<Option<(Ending, Instant)>>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With GOAWAY, after the current requests, and those that the client sends before it knows of it.
    Graceful,
    /// With GOAWAY, after the current requests. Others are refused; their clients send them again elsewhere.
    Final,
    /// At once, for this reason.
    Abrupt(&'static str),
    /// At once: nothing is left to answer.
    Now,
}

/// A request that counts as being answered until this is dropped.
pub struct OpenStream {
    clock: Rc<QuicClock>,
    _held: HeldHead,
    _permit: RequestPermit,
}

/// How long a client may take to notice the end of a connection, once nothing is left to answer.
const LAST_ROUND_TRIP: Duration = Duration::from_secs(1);
const POINTS_OF_REQUEST: i64 = 8;
const COST_OF_CANCELLING: i64 = 16;

// === impl QuicClock ===

impl QuicClock {
    /// The clock of a connection that this listener accepted. A draining connection ends after its requests.
    pub fn new(
        load: Arc<Load>,
        limit: Arc<ConnectionLimit>,
        listener: u64,
        is_draining: bool,
        is_confirmed: bool,
        limits: &Http,
    ) -> QuicClock {
        QuicClock {
            listener,
            send_timeout: Cell::new(limits.send_timeout),
            header_read_timeout: Cell::new(limits.header_read_timeout),
            requests: OpenRequests::new(load),
            is_confirmed: Cell::new(is_confirmed),
            confirmed: Notify::new(),
            sent: Cell::new(0),
            send_order: SendOrder::default(),
            head_memory: HeadMemory::new(limits.http2.max_concurrent_streams),
            limit,
            has_refused: Cell::new(false),
            send_grant: RefCell::default(),
            account: RefCell::new(Account::new()),
            ending: Cell::new(is_draining.then(|| (Ending::Graceful, Instant::now()))),
        }
    }

    /// A stream of a request begins.
    ///
    /// # Errors
    /// When it must be refused, because the client's open requests take too much with it.
    pub fn stream_began(self: &Rc<Self>) -> Result<OpenStream, Excess> {
        let held = self.head_memory.hold_stream().ok_or(Excess::Memory).and_then(|held| {
            let permit = self.limit.acquire_request(self.requests.count());
            permit.map(|permit| (held, permit)).ok_or(Excess::Descriptors)
        });
        let (held, permit) = held.inspect_err(|_| self.charge(COST_OF_CANCELLING))?;
        self.requests.began();
        self.send_grant.borrow_mut().get_or_insert_with(SendGrant::take);
        self.charge(-POINTS_OF_REQUEST);
        Ok(OpenStream { clock: Rc::clone(self), _held: held, _permit: permit })
    }

    /// How many bytes of responses may wait until the client has confirmed them.
    pub fn send_window(&self) -> u64 {
        self.send_grant.borrow().as_ref().map_or(LEAST_SEND_BYTES, SendGrant::bytes)
    }

    /// The memory of a part of a head; `None` if the client's open requests take too much with it.
    pub fn hold_bytes(&self, bytes: usize) -> Option<HeldHead> {
        self.head_memory.hold_bytes(bytes)
    }

    /// A head was refused that had not come whole.
    pub fn note_refusal(&self) {
        self.has_refused.set(true);
    }

    /// Whether a head was refused since the last call.
    pub fn take_refusal(&self) -> bool {
        self.has_refused.take()
    }

    /// Takes points from the account. A client whose account is empty loses its connection.
    pub fn charge(&self, points: i64) {
        let has_points = {
            let mut account = self.account.borrow_mut();
            account.add(-points);
            account.has_points()
        };
        if !has_points {
            self.end(Ending::Abrupt("too many frames without a use, or too many requests that were cancelled"));
        }
    }

    /// Bytes of a response were passed on.
    pub fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// How many bytes of responses were passed on.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// The order of its responses.
    pub fn send_order(&self) -> &SendOrder {
        &self.send_order
    }

    /// The handshake is complete.
    pub fn confirm(&self) {
        self.is_confirmed.set(true);
        self.confirmed.notify_waiters();
    }

    /// Whether the handshake is complete.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed.get()
    }

    /// Waits until the handshake is complete.
    pub async fn until_confirmed(&self) {
        while !self.is_confirmed.get() {
            self.confirmed.notified().await;
        }
    }

    /// How long the client may read nothing.
    pub fn send_timeout(&self) -> Duration {
        self.send_timeout.get()
    }

    /// How long the head of a request may take.
    pub fn header_read_timeout(&self) -> Duration {
        self.header_read_timeout.get()
    }

    /// How the connection is to end, if it is. Wakes this task when that changes.
    pub fn poll_ending(&self, context: &Context<'_>) -> Option<Ending> {
        self.requests.waker().keep(context);
        self.ending.get().map(|(ending, _)| ending)
    }

    /// Whether the connection ends at once.
    pub fn ends_abruptly(&self) -> bool {
        matches!(self.ending.get(), Some((Ending::Abrupt(_), _)))
    }

    /// Ends the connection. A harsher end replaces a milder one.
    pub fn end(&self, ending: Ending) {
        let is_harsher = match self.ending.get() {
            None => true,
            Some((Ending::Graceful, _)) => ending != Ending::Graceful,
            Some((Ending::Final, _)) => !matches!(ending, Ending::Graceful | Ending::Final),
            Some(_) => false,
        };
        if is_harsher {
            self.ending.set(Some((ending, Instant::now())));
            self.requests.waker().wake();
        }
    }

    /// Ready when there are no requests.
    pub fn poll_without_streams(&self, context: &Context<'_>) -> Poll<()> {
        self.requests.poll_empty(context)
    }
}

impl ConnectionClock for QuicClock {
    fn listener(&self) -> u64 {
        self.listener
    }

    fn check(&self, now: Instant, limits: &Http) {
        self.send_timeout.set(limits.send_timeout);
        self.header_read_timeout.set(limits.header_read_timeout);
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let is_idle = self.requests.is_empty();
        match self.ending.get() {
            None if is_idle && late(self.requests.none_since(), limits.idle_timeout) => {
                self.end(Ending::Graceful);
            }
            Some((Ending::Graceful, since)) if late(since, LAST_ROUND_TRIP) => self.end(Ending::Final),
            // A client closes the connection when it has got GOAWAY. Some never do.
            Some((Ending::Final, _)) if is_idle && late(self.requests.none_since(), LAST_ROUND_TRIP) => {
                self.end(Ending::Now);
            }
            _ => {}
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.requests.is_empty() && self.requests.had_some() && self.ending.get().is_none();
        is_idle.then(|| self.requests.none_since())
    }

    fn drain(&self) {
        self.end(Ending::Graceful);
    }

    fn is_quic(&self) -> bool {
        true
    }
}

// === impl OpenStream ===

impl OpenStream {
    /// The clock of its connection.
    pub fn connection(&self) -> &QuicClock {
        &self.clock
    }

    /// The memory of its head; `None` if the client's open requests take too much with this one.
    pub fn hold(&self, head: &Parts) -> Option<HeldHead> {
        self.clock.head_memory.hold_head(head)
    }

    /// The client has cancelled the request.
    pub fn was_cancelled(&self) {
        self.clock.charge(COST_OF_CANCELLING);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.clock.requests.ended();
        if self.clock.requests.is_empty() {
            self.clock.send_grant.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Rc<QuicClock> {
        let limit = ConnectionLimit::of_descriptors(1 << 20);
        Rc::new(QuicClock::new(Arc::default(), limit, 1, false, true, &Http::default()))
    }

    fn ending(clock: &QuicClock) -> Option<Ending> {
        clock.ending.get().map(|(ending, _)| ending)
    }

    #[test]
    fn requests_that_are_cancelled_empty_the_account() {
        let clock = clock();
        let cancelled = (0..10_000).take_while(|_| {
            clock.stream_began().unwrap().was_cancelled();
            ending(&clock).is_none()
        });
        assert!((900..1100).contains(&cancelled.count()));
        assert!(matches!(ending(&clock), Some(Ending::Abrupt(_))));
    }

    #[test]
    fn streams_that_are_refused_empty_the_account() {
        let clock = clock();
        let open: Vec<_> = (0..10_000).map_while(|_| clock.stream_began().ok()).collect();
        assert!(open.len() < 300 && ending(&clock).is_none());
        assert!((0..1000).any(|_| clock.stream_began().is_err() && clock.ends_abruptly()));
    }

    #[test]
    fn an_idle_connection_ends_gracefully_and_then_at_once() {
        let clock = clock();
        let limits = Http::default();
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let open = clock.stream_began().unwrap();
        clock.check(at(10_000), &limits);
        assert_eq!(ending(&clock), None);
        drop(open);
        clock.check(at(170), &limits);
        assert_eq!(ending(&clock), None);
        clock.check(at(190), &limits);
        assert_eq!(ending(&clock), Some(Ending::Graceful));
        clock.check(at(0), &limits);
        assert_eq!(ending(&clock), Some(Ending::Graceful));
        clock.check(at(2), &limits);
        assert_eq!(ending(&clock), Some(Ending::Final));
        clock.check(at(2), &limits);
        assert_eq!(ending(&clock), Some(Ending::Now));
    }
}
