//! The mailbox of a router thread: one bit for each slot that wants its attention, and whether the thread sleeps.
//!
//! It is a set and not a queue of completions, because a worker can be killed at any instruction. One atomic instruction
//! sets a bit: there is no reserved but unwritten cell that would block the completions behind it, nothing can overflow, a
//! slot that reports twice is one bit, and a hostile worker can only request attention for no reason, or clear the bits of
//! others. The slots that the thread itself puts aside are therefore in its own memory ([`Visits`]): no worker can remove them.
//!
//! Before the thread sleeps it sets `sleeping`, then checks the bits once more. A worker sets its bit, then checks
//! `sleeping`. Both are sequentially consistent, so that one of them sees the other. A worker writes the eventfd only if
//! the thread sleeps.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use std::cell::Cell;

/// A mailbox in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Mailbox<'m> {
    /// 1 while the thread sleeps, or is about to: then it waits for a write to its eventfd.
    pub sleeping: &'m AtomicU32,
    /// One bit for each slot.
    pub bits: &'m [AtomicU64],
}

/// The slots that a router thread has put aside for its next visit of the mailbox, and the slot that this visit begins with.
#[derive(Debug)]
pub struct Visits {
    /// One bit for each slot.
    bits: Box<[Cell<u64>]>,
    first: Cell<u16>,
}

// === impl Visits ===

impl Visits {
    /// No slot is put aside.
    pub(crate) fn new(slots: u16) -> Visits {
        Visits { bits: (0..usize::from(slots).div_ceil(64)).map(|_| Cell::new(0)).collect(), first: Cell::new(0) }
    }

    /// The next [`drain`](Mailbox::drain) visits this slot.
    ///
    /// # Panics
    /// If the channel has no such slot.
    pub fn keep(&self, slot: u16) {
        self.keep_all(usize::from(slot) / 64, 1 << (slot % 64));
    }

    /// Whether no slot is put aside.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| word.get() == 0)
    }

    fn keep_all(&self, word: usize, set: u64) {
        self.bits[word].set(self.bits[word].get() | set);
    }
}

// === impl Mailbox ===

impl Mailbox<'_> {
    /// Worker: requests attention for a slot. `true` when the thread sleeps and the caller must write its eventfd.
    #[must_use]
    pub fn post(&self, slot: u16) -> bool {
        let word = &self.bits[usize::from(slot) / 64];
        word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::SeqCst) == 1 && self.sleeping.swap(0, Ordering::SeqCst) == 1
    }

    /// Router: passes each slot that wants attention, or was put aside, to `visit`, once, in a circle, and clears its bit.
    /// `visit` returns whether it goes on: the slots that are left are put aside, or keep their bits.
    pub fn drain(&self, visits: &Visits, mut visit: impl FnMut(u16) -> bool) {
        let (count, first) = (self.bits.len(), visits.first.take());
        let (start, below) = (usize::from(first) / 64 % count, (1_u64 << (first % 64)) - 1);
        for step in 0..=count {
            let n = (start + step) % count;
            let part = match step {
                0 => !below,
                _ if step == count => below,
                _ => !0,
            };
            let (word, kept) = (&self.bits[n], visits.bits[n].get());
            visits.bits[n].set(kept & !part);
            let mut set = kept & part;
            if word.load(Ordering::Relaxed) & part != 0 {
                set |= word.fetch_and(!part, Ordering::SeqCst) & part;
            }
            while set != 0 {
                let slot = (n * 64) as u16 + set.trailing_zeros() as u16;
                set &= set - 1;
                if !visit(slot) {
                    visits.keep_all(n, set);
                    visits.first.set(slot.wrapping_add(1));
                    return;
                }
            }
        }
    }

    /// Router: whether no slot wants attention.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Router: announces sleep. `false` when a slot wants attention already: then the thread counts as awake.
    #[must_use]
    pub fn prepare_to_sleep(&self) -> bool {
        self.sleeping.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        self.sleeping.store(0, Ordering::SeqCst);
        false
    }

    /// Router: the thread is awake.
    pub fn woke(&self) {
        self.sleeping.store(0, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::array;

    #[test]
    fn a_visit_that_stops_leaves_the_others_and_the_next_one_goes_on_behind_it() {
        let (sleeping, bits): (_, [AtomicU64; 3]) = (AtomicU32::new(0), array::from_fn(|_| AtomicU64::new(0)));
        let mailbox = Mailbox { sleeping: &sleeping, bits: &bits };
        let (wanted, visits) = ([0, 5, 63, 64, 100, 191], Visits::new(192));
        let post_all = || wanted.iter().for_each(|slot| assert!(!mailbox.post(*slot)));
        post_all();
        for expected in [[0, 5], [63, 64], [100, 191], [0, 5], [63, 64]] {
            let mut visited = Vec::new();
            mailbox.drain(&visits, |slot| {
                visited.push(slot);
                visited.len() < 2
            });
            assert_eq!(visited, expected);
            // All of them want attention again, each time: none waits longer than for one circle.
            post_all();
        }
        let mut visited = Vec::new();
        mailbox.drain(&visits, |slot| {
            visited.push(slot);
            true
        });
        assert_eq!(visited, [100, 191, 0, 5, 63, 64]);
        assert!(mailbox.is_empty() && visits.is_empty());
    }

    #[test]
    fn slots_that_are_put_aside_are_visited_though_a_worker_clears_their_bits() {
        let (sleeping, bits): (_, [AtomicU64; 2]) = (AtomicU32::new(0), array::from_fn(|_| AtomicU64::new(0)));
        let mailbox = Mailbox { sleeping: &sleeping, bits: &bits };
        let visits = Visits::new(128);
        let drain = |most: usize| {
            let mut visited = Vec::new();
            mailbox.drain(&visits, |slot| {
                visited.push(slot);
                visited.len() < most
            });
            bits.iter().for_each(|word| word.store(0, Ordering::SeqCst));
            visited
        };
        [3, 7, 10].iter().for_each(|slot| assert!(!mailbox.post(*slot)));
        assert_eq!(drain(1), [3]);
        visits.keep(3);
        assert_eq!(drain(2), [7, 10], "left by the first visit");
        assert!(!visits.is_empty());
        assert_eq!(drain(9), [3]);
        assert!(visits.is_empty());
        // A visit may put its slot aside again.
        visits.keep(64);
        mailbox.drain(&visits, |slot| {
            visits.keep(slot);
            true
        });
        assert_eq!(drain(9), [64]);
    }
}
