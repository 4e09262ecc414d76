//! The clock of an HTTP/2 connection: what it does, and since when.
//!
//! As with HTTP/1, no timer is armed for a request: the thread checks the clock four times a second. A connection
//! without requests ends after `idle_timeout`, with GOAWAY. A head that is not complete within `header_read_timeout`, and
//! a client that reads nothing for `send_timeout`, end the connection. A stream that does not go on has limits of its
//! own ([`stream`](crate::protocols::http2::stream)), and its end leaves the others alone.

use crate::net::connection_limit::{ConnectionLimit, RequestPermit};
use crate::net::load::Load;
use crate::protocols::connection::clock::ConnectionClock;
use crate::protocols::connection::heads::head_memory::{HeadMemory, HeldHead};
use crate::protocols::connection::open_requests::OpenRequests;
use crate::protocols::connection::priority::{PriorityField, PriorityUpdate};
use crate::protocols::connection::rejection::Excess;
use crate::protocols::http2::send_room::{SendRoom, SendTurn};
use howdah_config::Http;
use http::request::Parts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The clock of one connection.
pub struct MultiplexedClock {
    listener: u64,
    /// `settings/http/send_timeout` at the last check.
    send_timeout: Cell<Duration>,
    requests: OpenRequests,
    /// Since when the client's preface or the head of a request is incomplete.
    head_since: Cell<Option<Instant>>,
    write_blocked_since: Cell<Option<Instant>>,
    /// How many bytes of responses were passed on to h2.
    sent: Cell<u64>,
    send_room: SendRoom,
    head_memory: Rc<HeadMemory>,
    trailers: RefCell<Trailers>,
    /// The limit of descriptors.
    limit: Arc<ConnectionLimit>,
    /// How the connection ends, and since when that is known.
    ending: Cell<Option<(Ending, Instant)>>,
}

/// The trailers of requests. howdah drops them, but h2 keeps them until the body before them is read.
#[derive(Default)]
struct Trailers {
    /// The requests that are answered.
    open: Vec<u32>,
    /// The last request that has begun.
    last: u32,
    /// The memory of the trailers of a request.
    held: Vec<(u32, HeldHead)>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With GOAWAY, after the current requests.
    Graceful,
    /// With GOAWAY, without its current requests, for this reason.
    Abrupt(&'static str),
    /// At once: the client takes nothing, or does not answer.
    Now,
}

/// A request that counts as being answered until this is dropped.
pub struct OpenStream {
    clock: Rc<MultiplexedClock>,
    stream: u32,
    head: HeldHead,
    _permit: RequestPermit,
}

/// How long a client may take to notice the end of a connection, once nothing is left to answer.
const LAST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// The memory of trailers for each of their bytes: in HPACK, one byte may be a header, whose value is shared.
const BYTES_OF_TRAILER: usize = 64;
/// How long the head of a request that has begun may take at that time.
const LAST_HEAD: Duration = Duration::from_secs(10);

// === impl MultiplexedClock ===

impl MultiplexedClock {
    /// The clock of a connection that this listener accepted. A draining connection ends after its requests.
    pub fn new(
        load: Arc<Load>,
        limit: Arc<ConnectionLimit>,
        listener: u64,
        is_draining: bool,
        limits: &Http,
    ) -> MultiplexedClock {
        MultiplexedClock {
            listener,
            send_timeout: Cell::new(limits.send_timeout),
            requests: OpenRequests::new(load),
            head_since: Cell::new(Some(Instant::now())),
            write_blocked_since: Cell::new(None),
            sent: Cell::new(0),
            send_room: SendRoom::new(),
            head_memory: HeadMemory::new(limits.http2.max_concurrent_streams),
            trailers: RefCell::default(),
            limit,
            ending: Cell::new(is_draining.then(|| (Ending::Graceful, Instant::now()))),
        }
    }

    // --- Notices from the socket

    /// Whether a head, or the preface, has begun and is not complete.
    pub fn head_is_open(&self, is_open: bool) {
        if is_open != self.head_since.get().is_some() {
            self.head_since.set(is_open.then(Instant::now));
        }
    }

    /// The client's socket is full, after it has taken some bytes, or none.
    pub fn blocked(&self, has_moved: bool) {
        self.send_room.blocked();
        if has_moved || self.write_blocked_since.get().is_none() {
            self.write_blocked_since.set(Some(Instant::now()));
        }
    }

    /// All bytes went out.
    pub fn flushed(&self) {
        self.write_blocked_since.set(None);
        self.send_room.flushed();
    }

    /// Bytes of DATA were written by h2.
    pub fn wrote_data(&self, bytes: u64) {
        self.send_room.wrote_data(bytes);
    }

    /// The client has opened its window of the connection by this number of bytes.
    pub fn window_grew(&self, bytes: u64) {
        self.send_room.window_grew(bytes);
    }

    /// The client has changed the priority of a response.
    pub fn update_priority(&self, update: PriorityUpdate) {
        self.send_room.update(update);
    }

    // --- Requests

    /// A request begins.
    ///
    /// # Errors
    /// When the client's open requests take too much with this one.
    pub fn stream_began(self: &Rc<Self>, stream: u32, head: &Parts) -> Result<OpenStream, Excess> {
        self.trailers.borrow_mut().began(stream);
        let head = self.head_memory.hold(head).ok_or(Excess::Memory)?;
        let permit = self.limit.acquire_request(self.requests.count()).ok_or(Excess::Descriptors)?;
        self.requests.began();
        self.trailers.borrow_mut().open.push(stream);
        Ok(OpenStream { clock: Rc::clone(self), stream, head, _permit: permit })
    }

    /// Bytes of the trailers of a request came. Returns whether there is memory for them.
    pub fn trailers_came(&self, stream: u32, bytes: usize) -> bool {
        let trailers = &mut *self.trailers.borrow_mut();
        // h2 drops those of a request that has ended.
        if stream <= trailers.last && !trailers.open.contains(&stream) {
            return true;
        }
        let bytes = bytes * BYTES_OF_TRAILER;
        if let Some((_, held)) = trailers.held.iter_mut().find(|(its, _)| *its == stream) {
            return held.grow_by(bytes);
        }
        let held = self.head_memory.hold_bytes(bytes);
        let has_room = held.is_some();
        trailers.held.extend(held.map(|held| (stream, held)));
        has_room
    }

    /// Bytes of a response were passed on, in this turn.
    pub fn count_sent(&self, turn: &mut SendTurn<'_>, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
        turn.passed_on(bytes);
    }

    /// How many bytes of responses were passed on.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// The turns of a stream, with the priorities of its request and of its response.
    pub fn send_turn(&self, stream: u32, requested: PriorityField, changed: PriorityField) -> SendTurn<'_> {
        self.send_room.turn(stream, requested, changed)
    }

    /// Where heads of responses wait for the client.
    pub fn send_room(&self) -> &SendRoom {
        &self.send_room
    }

    /// How long the client may read nothing.
    pub fn send_timeout(&self) -> Duration {
        self.send_timeout.get()
    }

    // --- The connection

    /// How the connection is to end, if it is. Wakes this task when that changes.
    pub fn poll_ending(&self, context: &Context<'_>) -> Option<Ending> {
        self.requests.waker().keep(context);
        self.ending.get().map(|(ending, _)| ending)
    }

    /// Since when the connection is to end, if it is.
    pub fn ending_since(&self) -> Option<Instant> {
        self.ending.get().map(|(_, since)| since)
    }

    /// Whether new requests are refused. A client that does not answer the notice of the end could go on with them otherwise.
    pub fn refuses_requests(&self) -> bool {
        self.ending_since().is_some_and(|since| since.elapsed() > LAST_ROUND_TRIP)
    }

    /// Ends the connection. A harsher end replaces a milder one.
    pub fn end(&self, ending: Ending) {
        let is_harsher = match self.ending.get() {
            None => true,
            Some((Ending::Graceful, _)) => ending != Ending::Graceful,
            Some((Ending::Abrupt(_), _)) => ending == Ending::Now,
            Some((Ending::Now, _)) => false,
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

impl ConnectionClock for MultiplexedClock {
    fn listener(&self) -> u64 {
        self.listener
    }

    fn check(&self, now: Instant, limits: &Http) {
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let is_blocked = self.write_blocked_since.get().is_some();
        self.send_timeout.set(limits.send_timeout);
        if self.write_blocked_since.get().is_some_and(|since| late(since, limits.send_timeout)) {
            return self.end(Ending::Now);
        }
        if self.head_since.get().is_some_and(|since| late(since, limits.header_read_timeout)) {
            self.end(Ending::Abrupt("the head of a request, or the preface, took too long"));
        }
        let has_streams = !self.requests.is_empty();
        match self.ending.get() {
            None if !has_streams && late(self.requests.none_since(), limits.idle_timeout) => {
                self.end(Ending::Graceful);
            }
            // h2 ends the connection when the client has confirmed that it knows of the end. Some clients never do.
            Some((Ending::Graceful, since)) if !has_streams && !is_blocked => {
                let has_head = self.requests.had_some() && self.head_since.get().is_some();
                let patience = if has_head { LAST_HEAD } else { LAST_ROUND_TRIP };
                if late(since, patience) && late(self.requests.none_since(), LAST_ROUND_TRIP) {
                    self.end(Ending::Now);
                }
            }
            Some((Ending::Abrupt(_), since)) if late(since, LAST_ROUND_TRIP) => self.end(Ending::Now),
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
}

// === impl OpenStream ===

impl OpenStream {
    /// The clock of its connection.
    pub fn connection(&self) -> &MultiplexedClock {
        &self.clock
    }

    /// Keeps the head of its response, of this size, beside that of the request. `false` if there is no memory for it.
    #[must_use]
    pub fn keep_response_head(&mut self, bytes: usize) -> bool {
        self.head.grow_by(bytes)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.clock.trailers.borrow_mut().ended(self.stream);
        self.clock.requests.ended();
    }
}

// === impl Trailers ===

impl Trailers {
    /// A request begins. It is not open yet; those before it, which are not open, never will be.
    fn began(&mut self, stream: u32) {
        self.last = stream;
        self.held.retain(|(its, _)| *its >= stream || self.open.contains(its));
    }

    fn ended(&mut self, stream: u32) {
        self.open.retain(|its| *its != stream);
        self.held.retain(|(its, _)| *its != stream);
    }
}
