//! The mailbox of a router thread: one bit for each slot that wants its attention, and whether the thread sleeps.
//!
//! It is a set and not a queue of completions, because a worker can be killed at any instruction. One atomic instruction
//! sets a bit: there is no reserved but unwritten cell that would block the completions behind it, nothing can overflow, a
//! slot that reports twice is one bit, and a hostile worker can only request attention, for no reason.
//!
//! Before the thread sleeps it sets `sleeping`, then checks the bits once more. A worker sets its bit, then checks
//! `sleeping`. Both are sequentially consistent, so that one of them sees the other. A worker writes the eventfd only if
//! the thread sleeps.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A mailbox in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Mailbox<'m> {
    /// 1 while the thread sleeps, or is about to: then it waits for a write to its eventfd.
    pub sleeping: &'m AtomicU32,
    /// One bit for each slot.
    pub bits: &'m [AtomicU64],
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

    /// Router: passes each slot that wants attention to `visit`, once, and clears its bit.
    pub fn drain(&self, mut visit: impl FnMut(u16)) {
        for (n, word) in self.bits.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut set = word.swap(0, Ordering::SeqCst);
            while set != 0 {
                visit((n * 64) as u16 + set.trailing_zeros() as u16);
                set &= set - 1;
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
