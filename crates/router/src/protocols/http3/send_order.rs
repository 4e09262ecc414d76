//! Which response of a connection goes first (RFC 9218).
//!
//! quinn sends the bytes that it has in the order of their streams' ranks. It takes bytes until a window is full, the
//! client's or its own; then streams wait. As soon as there is room, all of them may try, in any order: a stream lets the
//! more urgent ones that wait try before it does, and of equal ones those that have waited longer.
//!
//! A stream that waits for its own window tries in vain, and holds no other one up. After [`TRIES_IN_VAIN`] of them, others
//! wake it no longer: quinn does when its window opens. Thus a client that opens no windows causes no work for each portion
//! of another stream.

use crate::protocols::connection::priority::{Priority, PriorityField, PriorityUpdate, PriorityUpdates};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The responses of one connection.
#[derive(Debug, Default)]
pub struct SendOrder {
    /// By the numbers of their streams.
    responses: RefCell<BTreeMap<u64, Rc<OpenResponse>>>,
    queue: RefCell<Queue>,
    /// The priorities that came by PRIORITY_UPDATE.
    updates: RefCell<PriorityUpdates>,
    last_turn: Cell<u64>,
}

/// A response's place among the others, until this is dropped.
pub struct Place<'o> {
    order: &'o SendOrder,
    response: Rc<OpenResponse>,
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
    turn: Cell<u64>,
    /// While it waits for a window.
    waker: RefCell<Option<Waker>>,
    /// Where it is in the queue.
    queued: Cell<Option<Turn>>,
    /// How often others have written since it waits in the queue, although it was before them.
    passed_over: Cell<u8>,
}

/// The responses that wait for room, except those that wait for their own windows.
#[derive(Debug, Default)]
struct Queue {
    /// They have tried, and are to be woken.
    waiting: BTreeMap<Turn, Rc<OpenResponse>>,
    /// They were woken, and have not tried since.
    woken: BTreeMap<Turn, Rc<OpenResponse>>,
}

/// The order: the greatest rank first; of equal ones, the response that has not written for longest.
type Turn = (Reverse<i32>, u64);

/// How often a response tries in vain while there is room for another one, until it is one that waits for its own window.
const TRIES_IN_VAIN: u8 = 2;
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
        let response = Rc::new(OpenResponse {
            stream,
            changed,
            rank: written,
            turn: Cell::new(self.next_turn()),
            waker: RefCell::default(),
            queued: Cell::default(),
            passed_over: Cell::default(),
        });
        self.responses.borrow_mut().insert(stream, Rc::clone(&response));
        Place { order: self, response, let_others_try: Cell::new(false) }
    }

    /// A client has changed a priority.
    pub fn update(&self, update: PriorityUpdate) {
        let PriorityUpdate { stream, field } = update;
        self.updates.borrow_mut().add(update);
        let responses = self.responses.borrow();
        let Some(response) = responses.get(&stream) else { return };
        response.rank.set(rank(field.changed_by(response.changed).priority(), stream));
        let mut queue = self.queue.borrow_mut();
        if queue.remove(response) {
            queue.add_woken(Rc::clone(response));
        }
        // quinn gets the rank with the next try.
        response.wake();
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
        if !self.let_others_try.replace(true) && self.order.queue.borrow_mut().wake_those_before(self.response.place())
        {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// The stream has tried: it wrote, or waits for a window.
    pub fn tried(&self, wrote: bool, context: &Context<'_>) {
        self.let_others_try.set(false);
        let response = &self.response;
        let mut queue = self.order.queue.borrow_mut();
        let was_queued = queue.remove(response);
        if wrote {
            queue.pass_over_those_before(response.place());
            response.turn.set(self.order.next_turn());
            *response.waker.borrow_mut() = None;
        } else {
            if !was_queued {
                response.passed_over.set(0);
            }
            *response.waker.borrow_mut() = Some(context.waker().clone());
            queue.add_waiting(Rc::clone(response));
        }
    }

    /// Whether a more urgent response waits for room.
    pub fn is_behind(&self) -> bool {
        self.order.queue.borrow().has_before((Reverse(self.response.rank.get()), 0))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.order.queue.borrow_mut().remove(&self.response);
        self.order.responses.borrow_mut().remove(&self.response.stream);
        self.order.updates.borrow_mut().forget(self.response.stream);
    }
}

// === impl OpenResponse ===

impl OpenResponse {
    fn place(&self) -> Turn {
        (Reverse(self.rank.get()), self.turn.get())
    }

    /// Returns how often it was.
    fn is_passed_over(&self) -> u8 {
        self.passed_over.set(self.passed_over.get().saturating_add(1));
        self.passed_over.get()
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

// === impl Queue ===

/// Each response that is woken or passed over has been added before: the cost of a try does not depend on the number of
/// responses.
impl Queue {
    fn add_waiting(&mut self, response: Rc<OpenResponse>) {
        let place = response.place();
        response.queued.set(Some(place));
        self.waiting.insert(place, response);
    }

    fn add_woken(&mut self, response: Rc<OpenResponse>) {
        let place = response.place();
        response.queued.set(Some(place));
        self.woken.insert(place, response);
    }

    /// Whether it was there.
    fn remove(&mut self, response: &OpenResponse) -> bool {
        let Some(place) = response.queued.take() else { return false };
        self.waiting.remove(&place).or_else(|| self.woken.remove(&place)).is_some()
    }

    fn has_before(&self, place: Turn) -> bool {
        let is_before = |first: Option<(&Turn, _)>| first.is_some_and(|(first, _)| *first < place);
        is_before(self.waiting.first_key_value()) || is_before(self.woken.first_key_value())
    }

    /// Whether responses wait that go before this place.
    fn wake_those_before(&mut self, place: Turn) -> bool {
        let has_before = self.has_before(place);
        while let Some(first) = self.waiting.first_entry()
            && *first.key() < place
        {
            let response = first.remove();
            response.wake();
            self.add_woken(response);
        }
        has_before
    }

    /// The response at this place has written.
    fn pass_over_those_before(&mut self, place: Turn) {
        let before = self.waiting.range(..place);
        let have_own_windows = before.filter(|(_, response)| response.is_passed_over() >= TRIES_IN_VAIN);
        for place in have_own_windows.map(|(place, _)| *place).collect::<Vec<_>>() {
            if let Some(response) = self.waiting.remove(&place) {
                response.queued.set(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::connection::task_waker::counting::waker;
    use std::collections::VecDeque;

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
    fn streams_that_wait_for_their_own_windows_are_not_woken_for_each_portion_of_others() {
        const URGENT: u64 = 100;
        const PORTIONS: usize = 1000;
        let order = SendOrder::default();
        let urgency = |number| if number < URGENT { "u=0" } else { "u=3" };
        let places: Vec<_> = (0..=URGENT).map(|number| place(&order, 4 * number, urgency(number))).collect();
        let tasks: Vec<_> = places.iter().map(|_| waker()).collect();
        let usual = places.len() - 1;
        // The tasks run as on an event loop.
        let (mut ready, mut portions, mut tries_in_vain) = (VecDeque::from_iter(0..places.len()), 0, 0);
        while portions < PORTIONS {
            let number = ready.pop_front().expect("a task that is ready");
            let context = Context::from_waker(&tasks[number].1);
            while portions < PORTIONS && places[number].poll(&context).is_ready() {
                let has_room = number == usual;
                places[number].tried(has_room, &context);
                if !has_room {
                    tries_in_vain += 1;
                    break;
                }
                portions += 1;
            }
            let woken = |number: &usize| tasks[*number].0.take() > 0 && !ready.contains(number);
            let woken: Vec<_> = (0..places.len()).filter(woken).collect();
            ready.extend(woken);
        }
        assert!((100..=1000).contains(&tries_in_vain), "{tries_in_vain}");
        assert!(!places[usual].is_behind());
        // A window opens, and is full again: the stream goes first.
        let context = Context::from_waker(&tasks[7].1);
        places[7].tried(true, &context);
        places[7].tried(false, &context);
        let context = Context::from_waker(&tasks[usual].1);
        assert!(places[usual].poll(&context).is_pending() && places[usual].is_behind());
    }

    #[test]
    fn a_client_changes_a_priority() {
        let order = SendOrder::default();
        order.update(PriorityUpdate { stream: 8, field: field("u=0") });
        let (early, late) = (place(&order, 8, "u=7"), place(&order, 12, "u=7"));
        assert_eq!(early.response.rank.get(), rank(field("u=0").priority(), 8));
        let (woken, waker) = waker();
        late.tried(false, &Context::from_waker(&waker));
        order.update(PriorityUpdate { stream: 12, field: field("u=2") });
        assert_eq!((late.response.rank.get(), woken.take()), (rank(field("u=2").priority(), 12), 1));
        let changed = order.place(16, field("u=7, i"), field("u=1"), Rc::default());
        assert_eq!(
            changed.response.rank.get(),
            rank(field("u=1, i").priority(), 16),
            "the application changes what it names"
        );
        drop(early);
        assert_eq!(order.updates.borrow().of(8), None);
    }
}
