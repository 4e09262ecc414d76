//! The submission queue: a bounded ring of hints, "slot S waits with request Q", from the router to the workers.
//!
//! Many producers (the router's threads) and many consumers (the workers). It differs from the usual bounded queue in one
//! point: a consumer may be killed between any two instructions, and may write any value to any word:
//!
//! - Taking a hint is one compare-and-swap of `head`; a consumer never writes a cell, so none can be left half taken.
//! - A hint is only a hint: the slot's own word decides. A consumer that took a hint still has to claim the slot, and
//!   fails if the hint was stale. A consumer that is killed in between strands a slot in `Submitted`; the router sees
//!   that `head` has passed the slot's ticket and pushes the hint again.
//! - A cell that a worker overwrote stops all consumers that reach it. A head that was set back to a cell that was never
//!   published does the same. The router sees that the head stays at a ticket whose cell does not contain it.
//! - The producers' position is in the router's own memory. Workers need no such position: a cell is published when it
//!   contains its own ticket.
//!
//! A slot has at most one live hint, so that a ring of twice as many cells as slots has room for all of them, including
//! the hints that were pushed again. The ticket in each cell is Dmitry Vyukov's idea (bounded MPMC queue, 1024cores.net).

use crate::sync::{AtomicU64, Ordering};

/// A hint: this slot waits, with the request whose sequence number has these low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub slot: u16,
    pub sequence: u16,
}

/// The queue in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct SubmissionQueue<'m> {
    /// The next ticket to be taken. Workers advance it.
    pub head: &'m AtomicU64,
    /// A power of two of cells: `[ticket + 1: 32][slot: 16][sequence: 16]`.
    pub cells: &'m [AtomicU64],
}

/// `head` has an impossible value: a worker wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadOutOfRange;

// === impl SubmissionQueue ===

impl SubmissionQueue<'_> {
    /// Publishes a hint under the ticket that the caller reserved in the router's own `tail`.
    pub fn publish(&self, ticket: u64, hint: Hint) {
        self.cell(ticket).store(cell_word(ticket, hint), Ordering::Release);
    }

    /// Takes the oldest hint; `None` when the queue is empty, or when the oldest is not published yet.
    pub fn take(&self) -> Option<Hint> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let word = self.cell(head).load(Ordering::Acquire);
            if word >> 32 != published(head) {
                return None;
            }
            match self.head.compare_exchange_weak(head, head.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Hint { slot: (word >> 16) as u16, sequence: word as u16 }),
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is a hint to take.
    pub fn has_hint(&self) -> bool {
        self.has_more_hints_than(0)
    }

    /// Whether there are more hints to take than this number. More than half of a full ring is as much as a full one.
    pub fn has_more_hints_than(&self, number: u32) -> bool {
        let last = self.head.load(Ordering::Acquire).wrapping_add(u64::from(number).min(self.cells.len() as u64 / 2));
        self.cell(last).load(Ordering::Acquire) >> 32 == published(last)
    }

    /// The number of tickets below `tail`, the router's own, that have not been taken.
    ///
    /// # Errors
    /// When `head` is beyond `tail` or further behind than the ring is long.
    pub fn waiting(&self, tail: &AtomicU64) -> Result<u64, HeadOutOfRange> {
        // Other threads push and workers take at the same time. A consumer does not pass a ticket that is not published.
        // Therefore head is neither beyond a tail that is loaded later, nor a whole ring behind a tail that was loaded
        // before.
        let before = tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        let after = tail.load(Ordering::Acquire);
        let in_range =
            after.wrapping_sub(head) as i64 >= 0 && before.wrapping_sub(head) as i64 <= self.cells.len() as i64;
        if in_range { Ok((before.wrapping_sub(head) as i64).max(0) as u64) } else { Err(HeadOutOfRange) }
    }

    /// The next ticket to be taken, if a router thread has reserved it, but its cell does not contain it: no worker gets
    /// past it. This is also the case for a moment while the thread is about to publish it.
    pub fn stuck_at(&self, tail: &AtomicU64) -> Option<u64> {
        let head = self.head.load(Ordering::Acquire);
        // The head is loaded again after the cell: once head is past the cell, the cell may contain the ticket of the
        // ring's next round.
        let is_published = self.cell(head).load(Ordering::Acquire) >> 32 == published(head);
        let is_reserved = head != tail.load(Ordering::Acquire);
        (is_reserved && !is_published && self.head.load(Ordering::Acquire) == head).then_some(head)
    }

    /// Whether the ticket has been taken (or skipped).
    pub fn is_taken(&self, ticket: u64) -> bool {
        (self.head.load(Ordering::Acquire).wrapping_sub(ticket) as i64) > 0
    }

    /// Empties the queue for a router that replaces another one, and returns its first ticket.
    pub fn restart(&self) -> u64 {
        // Beyond any ticket that the former router can have published.
        let next = self.head.load(Ordering::Acquire).wrapping_add(2 * self.cells.len() as u64) & u64::from(u32::MAX);
        self.clear();
        self.head.store(next, Ordering::Release);
        next
    }

    /// Empties a queue that a worker broke. After this, all reserved tickets count as taken, so that the router pushes the
    /// requests that still wait again.
    pub fn repair(&self, tail: &AtomicU64) {
        self.clear();
        let skipped = 2 * self.cells.len() as u64;
        self.head.store(tail.fetch_add(skipped, Ordering::AcqRel).wrapping_add(skipped), Ordering::Release);
    }

    /// Leaves no hint for any value of `head`: each cell receives a ticket that belongs in its neighbour.
    fn clear(&self) {
        for (n, cell) in self.cells.iter().enumerate() {
            cell.store(published(n as u64 + 1) << 32, Ordering::Release);
        }
    }

    fn cell(&self, ticket: u64) -> &AtomicU64 {
        &self.cells[ticket as usize & (self.cells.len() - 1)]
    }
}

fn cell_word(ticket: u64, hint: Hint) -> u64 {
    published(ticket) << 32 | u64::from(hint.slot) << 16 | u64::from(hint.sequence)
}

/// The upper half of a published cell. It is never zero in the first round, so that fresh memory is empty.
fn published(ticket: u64) -> u64 {
    ticket.wrapping_add(1) & u64::from(u32::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const CELLS: usize = 16;

    /// The queue and a router's own tail, in private memory.
    struct Owned {
        head: AtomicU64,
        tail: AtomicU64,
        cells: Vec<AtomicU64>,
    }

    impl Owned {
        fn starting_at(ticket: u64) -> Owned {
            let owned = Owned {
                head: AtomicU64::new(ticket),
                tail: AtomicU64::new(ticket),
                cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            };
            owned.queue().clear();
            owned
        }
        fn queue(&self) -> SubmissionQueue<'_> {
            SubmissionQueue { head: &self.head, cells: &self.cells }
        }
        fn push(&self, hint: Hint) -> u64 {
            let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
            self.queue().publish(ticket, hint);
            ticket
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum QueueStep {
        Push(Hint),
        Take,
        Repair,
        Restart,
    }

    fn queue_step() -> impl Strategy<Value = QueueStep> {
        prop_oneof![
            20 => (0u16.., 0u16..).prop_map(|(slot, sequence)| QueueStep::Push(Hint { slot, sequence })),
            20 => Just(QueueStep::Take),
            1 => Just(QueueStep::Repair),
            1 => Just(QueueStep::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn hints_come_out_as_they_went_in(
            first in prop_oneof![0u64..100, u64::from(u32::MAX) - 40..u64::from(u32::MAX) + 40],
            steps in prop::collection::vec(queue_step(), 0..if cfg!(miri) { 40 } else { 400 }),
        ) {
            let owned = Owned::starting_at(first);
            let queue = owned.queue();
            let mut model = VecDeque::new();
            let mut taken = Vec::new();
            for step in steps {
                match step {
                    QueueStep::Push(hint) if model.len() < CELLS => model.push_back((owned.push(hint), hint)),
                    QueueStep::Push(_) => {}
                    QueueStep::Take => {
                        let expected = model.pop_front();
                        prop_assert_eq!(queue.take(), expected.map(|(_, hint)| hint));
                        taken.extend(expected.map(|(ticket, _)| ticket));
                    }
                    QueueStep::Repair => {
                        queue.repair(&owned.tail);
                        taken.extend(model.drain(..).map(|(ticket, _)| ticket));
                    }
                    QueueStep::Restart => {
                        owned.tail.store(queue.restart(), Ordering::Relaxed);
                        model.clear();
                        taken.clear();
                    }
                }
                prop_assert_eq!(queue.has_hint(), !model.is_empty());
                for number in 0..CELLS / 2 {
                    prop_assert_eq!(queue.has_more_hints_than(number as u32), model.len() > number);
                }
                prop_assert_eq!(queue.stuck_at(&owned.tail), None);
                prop_assert_eq!(queue.waiting(&owned.tail), Ok(model.len() as u64));
                prop_assert!(model.iter().all(|(ticket, _)| !queue.is_taken(*ticket)));
                prop_assert!(taken.iter().all(|ticket| queue.is_taken(*ticket)));
            }
        }

        #[test]
        fn a_head_that_a_worker_wrote_is_out_of_range_or_repaired(
            head in prop_oneof![0u64.., 0u64..200],
            cells in prop::collection::vec(0u64.., CELLS),
            pushed in 0u64..12,
        ) {
            let owned = Owned::starting_at(100);
            let queue = owned.queue();
            let hint = Hint { slot: 1, sequence: 2 };
            let tickets: Vec<u64> = (0..pushed).map(|_| owned.push(hint)).collect();
            owned.head.store(head, Ordering::Relaxed);
            owned.cells.iter().zip(cells).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
            let in_range = (100 + pushed).checked_sub(head).is_some_and(|waiting| waiting <= CELLS as u64);
            prop_assert_eq!(queue.waiting(&owned.tail).is_ok(), in_range);
            let stuck = head != 100 + pushed && !queue.has_hint();
            prop_assert_eq!(queue.stuck_at(&owned.tail), stuck.then_some(head));
            queue.repair(&owned.tail);
            prop_assert!(tickets.iter().all(|ticket| queue.is_taken(*ticket)));
            prop_assert_eq!(queue.take(), None);
            owned.push(hint);
            prop_assert_eq!(queue.take(), Some(hint));
        }
    }

    #[test]
    fn a_queue_in_use_is_never_reported_as_broken() {
        let owned = Owned::starting_at(0);
        let per_thread = if cfg!(miri) {
            50
        } else if cfg!(debug_assertions) {
            20_000
        } else {
            500_000
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..per_thread {
                        while owned.queue().waiting(&owned.tail).expect("no worker wrote the head") + 4 > CELLS as u64 {
                            std::thread::yield_now();
                        }
                        owned.push(Hint { slot: 0, sequence: n as u16 });
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < per_thread {
                        match owned.queue().take() {
                            Some(_) => taken += 1,
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert_eq!(owned.queue().waiting(&owned.tail), Ok(0));
    }
}
