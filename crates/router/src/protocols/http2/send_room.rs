//! Which response of a connection may pass bytes on to h2, and when.
//!
//! h2 has a buffer for each stream, and sends them in turns. A client that reads nothing would fill all of them, and the
//! most urgent response would be one of many. Therefore streams wait here, before they take anything of their bodies: while
//! the socket takes nothing, while [`MOST_BYTES`] were not written, and while the client's window of the connection is
//! closed. When there is room, the stream with the best priority (RFC 9218) goes first: the most urgent ones, of those the
//! ones that are not incremental in the order of their requests, and then the incremental ones in turns.
//!
//! A stream that waits for its own window, or for its body, does not keep others from the room.
//!
//! Heads have no window. They wait while the socket takes nothing, and while [`MOST_BYTES`] of heads were not written.

use crate::protocols::connection::priority::{Priority, PriorityField, PriorityUpdate, PriorityUpdates};
use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// The room of one connection.
#[derive(Debug)]
pub struct SendRoom {
    /// How many bytes were passed on since the last time that all were written.
    unwritten: Cell<usize>,
    /// The same for heads of responses.
    unwritten_heads: Cell<usize>,
    /// Streams that wait to pass their heads on.
    waiting_heads: RefCell<Vec<Waker>>,
    /// How many bytes the client's window of the connection has, without those that were written.
    window: Cell<i64>,
    /// Whether the socket takes nothing.
    is_blocked: Cell<bool>,
    waiting: RefCell<Vec<WaitingStream>>,
    /// The priorities that came by PRIORITY_UPDATE.
    updates: RefCell<PriorityUpdates>,
    /// The last round of incremental streams.
    last_round: Cell<u64>,
}

/// A stream's way to the room.
pub struct SendTurn<'r> {
    room: &'r SendRoom,
    stream: u32,
    /// The priority of the request.
    requested: PriorityField,
    /// The priority of the response, as the application has changed it.
    changed: PriorityField,
    /// When an incremental stream had its last turn.
    round: u64,
    is_waiting: bool,
}

#[derive(Debug)]
struct WaitingStream {
    rank: Rank,
    changed: PriorityField,
    round: u64,
    waker: Waker,
}

/// The smallest one goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    urgency: u8,
    is_incremental: bool,
    round: u64,
    stream: u32,
}

/// How many bytes of one response may wait in h2: never fewer than may be passed on, or a stream would wait there, with a
/// part of the connection's window that others could use.
pub const MOST_OF_STREAM: usize = 2 * MOST_BYTES;
/// One write has some of them: more would be no faster.
const MOST_BYTES: usize = 128 * 1024;
/// A connection's window at its beginning (RFC 9113, 6.9.2).
const FIRST_WINDOW: i64 = 65_535;

// === impl SendRoom ===

impl SendRoom {
    /// The room of a connection that begins.
    pub fn new() -> SendRoom {
        SendRoom {
            unwritten: Cell::new(0),
            unwritten_heads: Cell::new(0),
            waiting_heads: RefCell::default(),
            window: Cell::new(FIRST_WINDOW),
            is_blocked: Cell::new(false),
            waiting: RefCell::default(),
            updates: RefCell::default(),
            last_round: Cell::new(0),
        }
    }

    /// The way of a stream with these fields of its request and of its response.
    pub fn turn(&self, stream: u32, requested: PriorityField, changed: PriorityField) -> SendTurn<'_> {
        SendTurn { room: self, stream, requested, changed, round: self.next_round(), is_waiting: false }
    }

    /// Bytes of DATA were written.
    pub fn wrote_data(&self, bytes: u64) {
        self.window.set(self.window.get() - bytes as i64);
    }

    /// The client has opened its window of the connection.
    pub fn window_grew(&self, bytes: u64) {
        self.window.set(self.window.get().saturating_add_unsigned(bytes));
        self.wake_first();
    }

    /// A client has changed a priority.
    pub fn update(&self, update: PriorityUpdate) {
        let PriorityUpdate { stream, field } = update;
        self.updates.borrow_mut().add(update);
        let mut waiting = self.waiting.borrow_mut();
        let Some(waiting) = waiting.iter_mut().find(|other| u64::from(other.rank.stream) == stream) else { return };
        waiting.rank = Rank::of(field.changed_by(waiting.changed), waiting.round, waiting.rank.stream);
        // Its rank may be better than that of the stream that was woken, or the other way round.
        waiting.waker.wake_by_ref();
    }

    /// The socket is full.
    pub fn blocked(&self) {
        self.is_blocked.set(true);
    }

    /// Everything was written.
    pub fn flushed(&self) {
        self.unwritten.set(0);
        self.unwritten_heads.set(0);
        self.is_blocked.set(false);
        self.waiting_heads.take().into_iter().for_each(Waker::wake);
        self.wake_first();
    }

    /// Whether the head of a response may be passed on.
    pub fn takes_heads(&self) -> bool {
        !self.is_blocked.get() && self.unwritten_heads.get() < MOST_BYTES
    }

    /// Ready when the head of a response may be passed on.
    pub fn poll_head(&self, context: &Context<'_>) -> Poll<()> {
        if self.takes_heads() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting_heads.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Bytes of a head were passed on to h2.
    pub fn passed_head_on(&self, bytes: usize) {
        self.unwritten_heads.set(self.unwritten_heads.get() + bytes);
    }

    fn is_open(&self) -> bool {
        let unwritten = self.unwritten.get();
        !self.is_blocked.get() && unwritten < MOST_BYTES && (unwritten as i64) < self.window.get()
    }

    /// While there is room, the first one of those that wait has been woken.
    fn wake_first(&self) {
        if self.is_open()
            && let Some(first) = self.waiting.borrow().iter().min_by_key(|waiting| waiting.rank)
        {
            first.waker.wake_by_ref();
        }
    }

    fn next_round(&self) -> u64 {
        self.last_round.set(self.last_round.get() + 1);
        self.last_round.get()
    }
}

// === impl SendTurn ===

impl SendTurn<'_> {
    /// Whether the stream may pass bytes on at once: no other one waits for it.
    pub fn is_free(&self) -> bool {
        self.room.is_open() && self.room.waiting.borrow().is_empty()
    }

    /// Ready when the stream may pass bytes on.
    pub fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let rank = self.rank();
        let mut waiting = self.room.waiting.borrow_mut();
        let own = waiting.iter().position(|other| self.is_waiting && other.rank.stream == self.stream);
        let is_first = waiting.iter().all(|other| other.rank.stream == self.stream || rank < other.rank);
        if is_first && self.room.is_open() {
            if let Some(own) = own {
                waiting.swap_remove(own);
                self.is_waiting = false;
            }
            drop(waiting);
            // It may have no bytes.
            self.room.wake_first();
            return Poll::Ready(());
        }
        match own {
            Some(own) => {
                (waiting[own].rank, waiting[own].round) = (rank, self.round);
                waiting[own].waker.clone_from(context.waker());
            }
            None => {
                let (changed, round) = (self.changed, self.round);
                waiting.push(WaitingStream { rank, changed, round, waker: context.waker().clone() });
            }
        }
        self.is_waiting = true;
        drop(waiting);
        // Another one may be the first now.
        if !is_first {
            self.room.wake_first();
        }
        Poll::Pending
    }

    /// Bytes were passed on to h2.
    pub fn passed_on(&mut self, bytes: usize) {
        self.room.unwritten.set(self.room.unwritten.get() + bytes);
        self.round = self.room.next_round();
    }

    fn rank(&self) -> Rank {
        let updated = self.room.updates.borrow().of(self.stream.into());
        Rank::of(updated.unwrap_or(self.requested).changed_by(self.changed), self.round, self.stream)
    }
}

impl Rank {
    fn of(field: PriorityField, round: u64, stream: u32) -> Rank {
        let Priority { urgency, is_incremental } = field.priority();
        Rank { urgency, is_incremental, round: if is_incremental { round } else { 0 }, stream }
    }
}

impl Drop for SendTurn<'_> {
    fn drop(&mut self) {
        self.room.updates.borrow_mut().forget(self.stream.into());
        if self.is_waiting {
            self.room.waiting.borrow_mut().retain(|other| other.rank.stream != self.stream);
            self.room.wake_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::connection::task_waker::counting::{self, Woken};
    use std::sync::Arc;

    /// A stream that counts how often it is woken.
    struct Stream<'r> {
        turn: SendTurn<'r>,
        woken: Arc<Woken>,
        waker: Waker,
    }

    impl<'r> Stream<'r> {
        fn new(room: &'r SendRoom, number: u32, requested: &str) -> Stream<'r> {
            let (woken, waker) = counting::waker();
            let turn = room.turn(number, PriorityField::parse(requested.as_bytes()), PriorityField::default());
            Stream { turn, waker, woken }
        }

        fn is_ready(&mut self) -> bool {
            self.turn.poll(&Context::from_waker(&self.waker)).is_ready()
        }

        fn take_woken(&self) -> bool {
            self.woken.take() > 0
        }
    }

    fn open_room() -> SendRoom {
        let room = SendRoom::new();
        room.window_grew(1 << 30);
        room
    }

    /// The order in which streams with these priorities send portions, each of them two.
    fn order(priorities: &[&str]) -> Vec<u32> {
        let room = open_room();
        let mut streams: Vec<_> =
            priorities.iter().zip(0..).map(|(requested, number)| (Stream::new(&room, number, requested), 2)).collect();
        room.blocked();
        assert!(streams.iter_mut().all(|(stream, _)| !stream.is_ready()));
        let mut order = Vec::new();
        room.flushed();
        while let Some(index) = streams.iter().position(|(stream, _)| stream.take_woken()) {
            let (stream, left) = &mut streams[index];
            while *left > 0 && stream.is_ready() {
                stream.turn.passed_on(1);
                order.push(stream.turn.stream);
                *left -= 1;
            }
        }
        assert!(streams.iter().all(|(_, left)| *left == 0), "no stream is forgotten: {order:?}");
        order
    }

    #[test]
    fn the_best_priority_goes_first() {
        let table: &[(&[&str], &[u32])] = &[
            (&["u=5", "u=1", ""], &[1, 1, 2, 2, 0, 0]),
            (&["u=3", "u=3"], &[0, 0, 1, 1]),
            (&["i", "i", "u=3"], &[2, 2, 0, 1, 0, 1]),
            (&["", "", ""], &[0, 1, 2, 0, 1, 2]),
            (&["u=7", "u=0, i", "u=0, i", "u=0"], &[3, 3, 1, 2, 1, 2, 0, 0]),
        ];
        for (priorities, expected) in table {
            assert_eq!(order(priorities), *expected, "{priorities:?}");
        }
    }

    #[test]
    fn a_stream_waits_until_the_bytes_of_others_are_written() {
        let room = open_room();
        let (mut one, mut other) = (Stream::new(&room, 1, ""), Stream::new(&room, 3, ""));
        assert!(one.turn.is_free() && one.is_ready());
        one.turn.passed_on(MOST_BYTES);
        assert!(!other.is_ready() && !other.is_ready() && !other.turn.is_free());
        room.blocked();
        assert!(!other.is_ready() && !other.take_woken());
        room.flushed();
        assert!(other.take_woken() && other.is_ready());
    }

    #[test]
    fn a_socket_that_takes_nothing_leaves_no_room() {
        let room = open_room();
        let mut stream = Stream::new(&room, 1, "");
        room.blocked();
        assert!(!stream.is_ready());
        room.flushed();
        assert!(stream.take_woken() && stream.is_ready());
    }

    #[test]
    fn heads_wait_for_the_socket_and_for_no_window() {
        let room = SendRoom::new();
        let (woken, waker) = counting::waker();
        let context = Context::from_waker(&waker);
        room.window_grew(0);
        room.wrote_data(65_535);
        for is_blocked in [true, false] {
            assert!(room.poll_head(&context).is_ready());
            if is_blocked {
                room.blocked();
            } else {
                room.passed_head_on(MOST_BYTES);
            }
            assert!(room.poll_head(&context).is_pending() && room.poll_head(&context).is_pending());
            room.flushed();
            assert_eq!(woken.take(), 1);
        }
        assert!(room.takes_heads());
    }

    #[test]
    fn a_closed_window_leaves_no_room() {
        let room = SendRoom::new();
        let mut stream = Stream::new(&room, 1, "");
        stream.turn.passed_on(65_535);
        assert!(!stream.is_ready());
        room.wrote_data(65_535);
        room.flushed();
        assert!(!stream.take_woken() && !stream.is_ready());
        room.window_grew(1);
        assert!(stream.take_woken() && stream.is_ready());
        stream.turn.passed_on(1);
        assert!(!stream.is_ready());
    }

    #[test]
    fn a_stream_that_waits_and_ends_wakes_the_next_one() {
        let room = open_room();
        let (mut first, mut second) = (Stream::new(&room, 1, "u=1"), Stream::new(&room, 3, "u=2"));
        room.blocked();
        assert!(!first.is_ready() && !second.is_ready());
        room.flushed();
        assert!(first.take_woken() && !second.take_woken() && !second.is_ready(), "the first one has its turn");
        drop(first);
        assert!(second.take_woken() && second.is_ready());
    }

    #[test]
    fn a_client_changes_a_priority() {
        let room = open_room();
        let field = PriorityField::parse(b"u=0");
        // Before the response, and while it waits.
        room.update(PriorityUpdate { stream: 5, field });
        let (mut one, mut early) = (Stream::new(&room, 1, "u=1"), Stream::new(&room, 5, "u=7"));
        let mut late = Stream::new(&room, 7, "u=7");
        room.blocked();
        assert!(!one.is_ready() && !early.is_ready() && !late.is_ready());
        room.flushed();
        assert!(early.take_woken() && !one.take_woken() && early.is_ready());
        assert!(one.take_woken());
        room.update(PriorityUpdate { stream: 7, field });
        assert!(late.take_woken() && late.is_ready(), "more urgent than the one that was woken");
        assert!(one.is_ready());
        drop((early, late));
        assert_eq!((room.updates.borrow().of(5), room.updates.borrow().of(7)), (None, None));
    }
}
