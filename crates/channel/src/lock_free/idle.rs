//! The idle set: the workers that sleep, and how a request wakes one of them.
//!
//! A worker that finds the queue empty sets its bit, checks the queue again, and sleeps on its own doorbell (a futex). The
//! router publishes a hint, then clears the lowest set bit and rings that worker's doorbell. If no bit is set, it makes no
//! system call at all: a busy worker finds the hint. The lowest index first keeps the load on few, warm workers.
//!
//! No wake-up is lost: publish-then-check and set-then-check are both sequentially consistent, so that at least one side
//! sees the other. A worker that took a hint and sees more of them wakes the next worker ([`IdleSet::wake_one`] again). A
//! worker that dies or is hostile can leave a wrong bit (a bit of no sleeper, a cleared bit of a sleeper); the router's
//! sweep repairs the effects.

use crate::sync::{AtomicU64, Ordering, fence};

/// The set in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct IdleSet<'m> {
    /// One bit for each worker index.
    pub bits: &'m [AtomicU64],
}

// === impl IdleSet ===

impl IdleSet<'_> {
    /// The worker is about to sleep. It must check the queue once more after this.
    pub fn enter(&self, index: u16) {
        self.word(index).fetch_or(bit(index), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake.
    pub fn leave(&self, index: u16) {
        if self.word(index).load(Ordering::Relaxed) & bit(index) != 0 {
            self.word(index).fetch_and(!bit(index), Ordering::SeqCst);
        }
    }

    /// Takes one sleeping worker out of the set: the caller must ring its doorbell.
    ///
    /// Call it after the hint has been published.
    pub fn wake_one(&self) -> Option<u16> {
        fence(Ordering::SeqCst);
        for (n, word) in self.bits.iter().enumerate() {
            let mut seen = word.load(Ordering::SeqCst);
            while seen != 0 {
                let lowest = seen & seen.wrapping_neg();
                let before = word.fetch_and(!lowest, Ordering::SeqCst);
                if before & lowest != 0 {
                    return Some((n as u16) * 64 + lowest.trailing_zeros() as u16);
                }
                seen = before & !lowest;
            }
        }
        None
    }

    /// The number of workers that sleep. Call it after the hint has been published: a worker that enters the set later finds
    /// the hint.
    pub fn sleepers(&self) -> u32 {
        fence(Ordering::SeqCst);
        self.bits.iter().map(|word| word.load(Ordering::SeqCst).count_ones()).sum()
    }

    /// Whether this worker sleeps.
    pub fn contains(&self, index: u16) -> bool {
        self.word(index).load(Ordering::SeqCst) & bit(index) != 0
    }

    /// Empties the set: all workers are dead.
    pub fn clear(&self) {
        self.bits.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }

    fn word(&self, index: u16) -> &AtomicU64 {
        &self.bits[usize::from(index) / 64]
    }
}

fn bit(index: u16) -> u64 {
    1 << (index % 64)
}
