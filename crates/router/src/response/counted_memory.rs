//! Memory that responses take until their clients have read them, as all threads together count it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount of memory, which counts until this is dropped.
#[derive(Debug)]
pub struct CountedMemory {
    /// The memory of all.
    all: &'static AtomicUsize,
    bytes: usize,
}

// === impl CountedMemory ===

impl CountedMemory {
    /// Counts this amount, whatever the others have.
    pub fn count(all: &'static AtomicUsize, bytes: usize) -> CountedMemory {
        all.fetch_add(bytes, Ordering::Relaxed);
        CountedMemory { all, bytes }
    }

    /// Counts this amount; `None` if it would be more than `most` together with all others.
    pub fn take(all: &'static AtomicUsize, bytes: usize, most: usize) -> Option<CountedMemory> {
        let counted = CountedMemory { all, bytes };
        (all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= most).then_some(counted)
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_have_a_limit() {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let first = CountedMemory::take(&ALL, 60, 100).expect("there is room");
        assert!(CountedMemory::take(&ALL, 41, 100).is_none());
        let second = CountedMemory::take(&ALL, 40, 100).expect("an amount that was refused does not count");
        drop((first, second));
        assert_eq!(ALL.load(Ordering::Relaxed), 0);
    }
}
