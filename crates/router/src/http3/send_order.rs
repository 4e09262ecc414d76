//! Which response of a connection goes first (RFC 9218).
//!
//! quinn sends the bytes that it has in the order of their streams' ranks. It takes bytes until a window is full, the
//! client's or its own; then streams wait. As soon as there is room, all of them may try, in any order: a stream lets
//! the more urgent ones that wait try before it does, and of equal ones those that have waited longer. A stream that waits for its own window tries in vain, and holds no
//! other one up.

use crate::connection::priority::{Priority, PriorityField, PriorityUpdate, PriorityUpdates};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The responses of one connection.
#[derive(Debug, Default)]
pub struct SendOrder {
    responses: RefCell<Vec<OpenResponse>>,
    /// The priorities that came by PRIORITY_UPDATE.
    updates: RefCell<PriorityUpdates>,
    last_turn: Cell<u64>,
}

/// A response's place among the others, until this is dropped.
pub struct Place<'o> {
    order: &'o SendOrder,
    stream: u64,
    rank: Rc<Cell<i32>>,
    /// Whether the more urgent ones had their try.
    let_others_try: Cell<bool>,
}

#[derive(Debug)]
struct OpenResponse {
    stream: u64,
    /// The priority of the response, as the application has changed it.
    changed: PriorityField,
    rank: Rc<Cell<i32>>,
    /// When it wrote last.
    turn: u64,
    /// Of a response that waits for a window.
    waker: Option<Waker>,
}

/// How many ranks an urgency has: the first for responses that take turns, one for each of the others.
const RANKS_OF_URGENCY: i64 = 1 << 29;
const LEAST_URGENCY: u8 = 7;

/// The rank of a response on this stream. quinn sends a greater one first, and lets equal ones take turns.
fn rank(priority: Priority, stream: u64) -> i32 {
    let urgency = i64::from(LEAST_URGENCY.saturating_sub(priority.urgency));
    // Every fourth stream is one of a request.
    let number = i64::try_from(stream / 4).unwrap_or(i64::MAX);
    let within = if priority.is_incremental { 0 } else { RANKS_OF_URGENCY - 1 - number.min(RANKS_OF_URGENCY - 2) };
    i32::try_from(i64::from(i32::MIN) + urgency * RANKS_OF_URGENCY + within).unwrap_or(i32::MAX)
}

// === impl SendOrder ===

impl SendOrder {
    /// The place of a response with these fields of its request and of itself. Its rank is written there.
    pub fn place(
        &self,
        stream: u64,
        requested: PriorityField,
        changed: PriorityField,
        written: Rc<Cell<i32>>,
    ) -> Place<'_> {
        let field = self.updates.borrow().of(stream).unwrap_or(requested).changed_by(changed);
        written.set(rank(field.priority(), stream));
        let response = OpenResponse { stream, changed, rank: Rc::clone(&written), turn: self.next_turn(), waker: None };
        self.responses.borrow_mut().push(response);
        Place { order: self, stream, rank: written, let_others_try: Cell::new(false) }
    }

    /// A client has changed a priority.
    pub fn update(&self, update: PriorityUpdate) {
        let PriorityUpdate { stream, field } = update;
        self.updates.borrow_mut().add(update);
        let mut responses = self.responses.borrow_mut();
        let Some(response) = responses.iter_mut().find(|response| response.stream == stream) else { return };
        response.rank.set(rank(field.changed_by(response.changed).priority(), stream));
        // quinn gets the rank with the next try.
        if let Some(waker) = &response.waker {
            waker.wake_by_ref();
        }
    }

    fn next_turn(&self) -> u64 {
        self.last_turn.set(self.last_turn.get() + 1);
        self.last_turn.get()
    }
}

// === impl Place ===

impl Place<'_> {
    /// Ready when the stream may try to write.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if !self.let_others_try.replace(true) && self.wake_those_before() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// The stream has tried: it wrote, or waits for a window.
    pub fn tried(&self, wrote: bool, context: &Context<'_>) {
        self.let_others_try.set(false);
        let mut responses = self.order.responses.borrow_mut();
        if let Some(own) = responses.iter_mut().find(|response| response.stream == self.stream) {
            if wrote {
                own.turn = self.order.next_turn();
            }
            own.waker = (!wrote).then(|| context.waker().clone());
        }
    }

    /// Whether a more urgent response waits for a window.
    pub fn is_behind(&self) -> bool {
        self.order.responses.borrow().iter().any(|other| other.waker.is_some() && other.rank.get() > self.rank.get())
    }

    /// Whether responses wait that go before this one.
    fn wake_those_before(&self) -> bool {
        let responses = self.order.responses.borrow();
        let Some(own) = responses.iter().find(|response| response.stream == self.stream) else { return false };
        let place = |response: &OpenResponse| (Reverse(response.rank.get()), response.turn);
        let before = responses.iter().filter(|other| place(other) < place(own));
        before.filter_map(|other| other.waker.as_ref()).map(Waker::wake_by_ref).count() > 0
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.order.responses.borrow_mut().retain(|response| response.stream != self.stream);
        self.order.updates.borrow_mut().forget(self.stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::task_waker::counting::waker;

    fn field(text: &str) -> PriorityField {
        PriorityField::parse(text.as_bytes())
    }

    fn place<'o>(order: &'o SendOrder, stream: u64, requested: &str) -> Place<'o> {
        order.place(stream, field(requested), PriorityField::default(), Rc::default())
    }

    #[test]
    fn ranks_are_in_the_order_of_the_standard() {
        // From the first to the last one; equal ones take turns.
        let order =
            [("u=0", 400), ("u=0, i", 0), ("u=1", 0), ("u=3", 0), ("u=3", 4), ("u=3", 1 << 40), ("", 0), ("u=7", 8)];
        let ranks: Vec<_> =
            order.iter().map(|(requested, stream)| rank(field(requested).priority(), *stream)).collect();
        assert!(ranks.is_sorted_by(|before, after| before > after), "{ranks:?}");
        assert_eq!(rank(field("i").priority(), 4), rank(field("").priority(), 8));
        assert_eq!(rank(field("u=0").priority(), 0), i32::MAX);
        assert_eq!(rank(field("u=7, i").priority(), 0), i32::MIN);
    }

    #[test]
    fn a_stream_lets_more_urgent_ones_try_first_but_not_for_ever() {
        let order = SendOrder::default();
        let (usual, urgent) = (place(&order, 0, "u=3"), place(&order, 4, "u=1"));
        let ((usual_woken, usual_waker), (urgent_woken, urgent_waker)) = (waker(), waker());
        let (usual_context, urgent_context) = (Context::from_waker(&usual_waker), Context::from_waker(&urgent_waker));
        assert!(usual.poll(&usual_context).is_ready() && !usual.is_behind(), "the other one does not wait");
        usual.tried(false, &usual_context);
        assert!(urgent.poll(&urgent_context).is_ready());
        urgent.tried(false, &urgent_context);
        // There is room for the first.
        assert!(usual.poll(&usual_context).is_pending() && usual.is_behind());
        assert_eq!((urgent_woken.take(), usual_woken.take()), (1, 1));
        // The urgent one waits for its own window.
        assert!(urgent.poll(&urgent_context).is_ready());
        urgent.tried(false, &urgent_context);
        assert!(usual.poll(&usual_context).is_ready());
        usual.tried(true, &usual_context);
        assert!(usual.poll(&usual_context).is_pending(), "before each portion");
        drop(urgent);
        assert!(usual.poll(&usual_context).is_ready() && !usual.is_behind());
    }

    #[test]
    fn equal_streams_take_turns() {
        let order = SendOrder::default();
        let (one, other) = (place(&order, 0, "i"), place(&order, 4, "i"));
        let (one_waker, other_waker) = (waker().1, waker().1);
        let (one_context, other_context) = (Context::from_waker(&one_waker), Context::from_waker(&other_waker));
        one.tried(false, &one_context);
        other.tried(false, &other_context);
        assert!(other.poll(&other_context).is_pending(), "the first one goes first");
        assert!(one.poll(&one_context).is_ready());
        one.tried(true, &one_context);
        assert!(one.poll(&one_context).is_pending(), "it is the turn of the other one");
        assert!(other.poll(&other_context).is_ready());
        other.tried(true, &other_context);
        assert!(one.poll(&one_context).is_ready());
        one.tried(false, &one_context);
        assert!(other.poll(&other_context).is_pending());
    }

    #[test]
    fn a_client_changes_a_priority() {
        let order = SendOrder::default();
        order.update(PriorityUpdate { stream: 8, field: field("u=0") });
        let (early, late) = (place(&order, 8, "u=7"), place(&order, 12, "u=7"));
        assert_eq!(early.rank.get(), rank(field("u=0").priority(), 8));
        let (woken, waker) = waker();
        late.tried(false, &Context::from_waker(&waker));
        order.update(PriorityUpdate { stream: 12, field: field("u=2") });
        assert_eq!((late.rank.get(), woken.take()), (rank(field("u=2").priority(), 12), 1));
        let changed = order.place(16, field("u=7, i"), field("u=1"), Rc::default());
        assert_eq!(changed.rank.get(), rank(field("u=1, i").priority(), 16), "the application changes what it names");
        drop(early);
        assert_eq!(order.updates.borrow().of(8), None);
    }
}
