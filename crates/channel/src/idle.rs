//! The idle set: which workers sleep, and how a request wakes one of them.
//!
//! A worker that finds the queue empty sets its bit, looks again, and sleeps on its own doorbell (a futex). The router,
//! having published a hint, clears the lowest set bit and rings that worker's doorbell; with no bit set it makes no
//! system call at all: whoever is busy finds the hint. Lowest first keeps the load on few, warm workers.
//!
//! No wake-up is lost: publish-then-look and set-then-look are both sequentially consistent, so at least one side sees
//! the other. A worker that took a hint and sees more of them wakes the next ([`IdleSet::wake_one`] again). What a dying
//! or hostile worker can spoil (a bit set for nobody, a bit cleared by force) is mended by the router's sweep.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The set and the doorbells as they lie in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct IdleSet<'m> {
    /// One bit for each worker index.
    pub bits: &'m [AtomicU64],
}

// === impl IdleSet ===

impl IdleSet<'_> {
    /// The worker is about to sleep. It must look at the queue once more after this.
    pub fn enter(&self, index: u16) {
        self.word(index).fetch_or(bit(index), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The worker does not sleep (any more).
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

    /// Whether this worker sleeps.
    pub fn contains(&self, index: u16) -> bool {
        self.word(index).load(Ordering::SeqCst) & bit(index) != 0
    }

    /// How many workers sleep.
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Nobody sleeps: all workers are dead.
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

/// Rings a doorbell: whoever waits for the value that it had will wake.
pub(crate) fn ring(doorbell: &AtomicU32) {
    doorbell.fetch_add(1, Ordering::Release);
    #[cfg(not(loom))]
    crate::futex::wake(doorbell);
}
