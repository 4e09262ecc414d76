//! Memory that responses take until their clients have read them, and forms until a worker has them, as all threads together
//! count it.

use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount of memory, which counts until this is dropped.
#[derive(Debug)]
pub struct CountedMemory {
    /// The memory of all.
    all: &'static AtomicUsize,
    bytes: usize,
}

/// Bytes with their memory.
struct CountedBytes {
    bytes: Vec<u8>,
    _memory: CountedMemory,
}

// === impl CountedMemory ===

impl CountedMemory {
    /// None yet.
    pub fn none(all: &'static AtomicUsize) -> CountedMemory {
        CountedMemory { all, bytes: 0 }
    }

    /// Counts this amount, whatever the others have.
    pub fn count(all: &'static AtomicUsize, bytes: usize) -> CountedMemory {
        let mut counted = CountedMemory::none(all);
        counted.set(bytes);
        counted
    }

    /// Counts this amount; `None` if it would be more than `most` together with all others.
    pub fn take(all: &'static AtomicUsize, bytes: usize, most: usize) -> Option<CountedMemory> {
        let counted = CountedMemory { all, bytes };
        (all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= most).then_some(counted)
    }

    /// Counts this amount from now on.
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.all.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
            self.bytes = bytes;
        }
    }

    /// These bytes, whose memory counts until their last reference is dropped.
    pub fn with(self, bytes: Vec<u8>) -> Bytes {
        if self.bytes == 0 { bytes.into() } else { Bytes::from_owner(CountedBytes { bytes, _memory: self }) }
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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
