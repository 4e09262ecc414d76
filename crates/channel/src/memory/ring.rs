//! A byte ring whose two positions only grow.
//!
//! `written` and `read` count all bytes since the request began. Each side keeps its own position in private memory and
//! reads only the other side's position from the shared memory. [`readable`] and [`writable`] reject an impossible pair.

use super::word_copy::{append, copy_in, fill};
use crate::sync::AtomicU64;

/// A ring in a channel's memory: a power of two of words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'m> {
    words: &'m [AtomicU64],
}

/// The other side's position is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

/// The number of bytes between the positions.
pub(crate) fn readable(size: usize, written: u64, read: u64) -> Result<usize, Impossible> {
    let waiting = written.wrapping_sub(read);
    if waiting > size as u64 { Err(Impossible) } else { Ok(waiting as usize) }
}

/// The number of bytes that there is room for.
pub(crate) fn writable(size: usize, written: u64, read: u64) -> Result<usize, Impossible> {
    readable(size, written, read).map(|waiting| size - waiting)
}

// === impl Ring ===

impl<'m> Ring<'m> {
    pub fn new(words: &'m [AtomicU64]) -> Ring<'m> {
        debug_assert!(words.len().is_power_of_two());
        Ring { words }
    }

    /// Bytes; a power of two.
    pub fn size(&self) -> usize {
        self.words.len() * 8
    }

    /// Copies bytes in at the position. The caller has checked that there is room.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        let start = self.start(position);
        let (first, rest) = bytes.split_at(bytes.len().min(self.size() - start));
        copy_in(self.words, start, first);
        copy_in(self.words, 0, rest);
    }

    /// Appends `len` bytes from the position to `out`. The caller has checked that they are there.
    pub fn read(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        let start = self.start(position);
        let first = len.min(self.size() - start);
        append(self.words, start, first, out);
        append(self.words, 0, len - first, out);
    }

    /// Fills `out` from the position. The caller has checked that this number of bytes is there.
    pub fn read_to(&self, position: u64, out: &mut [u8]) {
        let start = self.start(position);
        let (first, rest) = out.split_at_mut(out.len().min(self.size() - start));
        fill(self.words, start, first);
        fill(self.words, 0, rest);
    }

    fn start(&self, position: u64) -> usize {
        position as usize & (self.size() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_positions_are_rejected() {
        assert_eq!(readable(64, 10, 10), Ok(0));
        assert_eq!(readable(64, 74, 10), Ok(64));
        assert_eq!(readable(64, 75, 10), Err(Impossible));
        assert_eq!(readable(64, 9, 10), Err(Impossible));
        assert_eq!(writable(64, 70, 10), Ok(4));
        assert_eq!(writable(64, u64::MAX, 10), Err(Impossible));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn bytes_are_read_as_they_were_written_across_the_edge(start in 0u64..10_000, bytes in proptest::collection::vec(0u8.., 0..=512)) {
            let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
            let ring = Ring::new(&words);
            ring.write(start, &bytes);
            let mut out = vec![1, 2, 3];
            ring.read(start, bytes.len(), &mut out);
            let mut filled = vec![0; bytes.len()];
            ring.read_to(start, &mut filled);
            proptest::prop_assert_eq!(&out[3..], &bytes);
            proptest::prop_assert_eq!(&filled, &bytes);
        }
    }
}
