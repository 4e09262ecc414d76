//! The arithmetic of a byte ring whose two positions only grow.
//!
//! `written` and `read` count all bytes since the request began. Each side keeps its own position in private memory and
//! reads only the other's from the shared memory; [`readable`] and [`writable`] refuse a pair that can't be true.

use crate::memory::Memory;

/// A ring within a channel's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub offset: usize,
    /// Bytes; a power of two.
    pub size: usize,
}

/// The other side's position is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

/// How many bytes wait between the positions.
pub(crate) fn readable(size: usize, written: u64, read: u64) -> Result<usize, Impossible> {
    let waiting = written.wrapping_sub(read);
    if waiting > size as u64 { Err(Impossible) } else { Ok(waiting as usize) }
}

/// How many bytes have room.
pub(crate) fn writable(size: usize, written: u64, read: u64) -> Result<usize, Impossible> {
    readable(size, written, read).map(|waiting| size - waiting)
}

// === impl Ring ===

impl Ring {
    /// Copies bytes in at the position. The caller knows that they have room.
    pub fn write(&self, memory: &Memory, position: u64, bytes: &[u8]) {
        let start = position as usize & (self.size - 1);
        let first = bytes.len().min(self.size - start);
        memory.copy_in(self.offset + start, &bytes[..first]);
        memory.copy_in(self.offset, &bytes[first..]);
    }

    /// Appends `len` bytes from the position to `out`. The caller knows that they wait.
    pub fn read(&self, memory: &Memory, position: u64, len: usize, out: &mut Vec<u8>) {
        let start = position as usize & (self.size - 1);
        let first = len.min(self.size - start);
        memory.copy_out(self.offset + start, first, out);
        memory.copy_out(self.offset, len - first, out);
    }

    /// Fills `out` from the position. The caller knows that so much waits.
    pub fn read_to(&self, memory: &Memory, position: u64, out: &mut [u8]) {
        let start = position as usize & (self.size - 1);
        let (first, rest) = out.split_at_mut(out.len().min(self.size - start));
        memory.copy_to(self.offset + start, first);
        memory.copy_to(self.offset, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_can_not_be_true_are_refused() {
        assert_eq!(readable(64, 10, 10), Ok(0));
        assert_eq!(readable(64, 74, 10), Ok(64));
        assert_eq!(readable(64, 75, 10), Err(Impossible));
        assert_eq!(readable(64, 9, 10), Err(Impossible));
        assert_eq!(writable(64, 70, 10), Ok(4));
        assert_eq!(writable(64, u64::MAX, 10), Err(Impossible));
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_across_the_edge(start in 0u64..10_000, bytes in proptest::collection::vec(0u8.., 0..=4096)) {
            let memory = Memory::map(Memory::create(8192).unwrap(), 8192).unwrap();
            let ring = Ring { offset: 4096, size: 4096 };
            ring.write(&memory, start, &bytes);
            let mut out = Vec::new();
            ring.read(&memory, start, bytes.len(), &mut out);
            let mut filled = vec![0; bytes.len()];
            ring.read_to(&memory, start, &mut filled);
            proptest::prop_assert_eq!(&out, &bytes);
            proptest::prop_assert_eq!(&filled, &bytes);
        }
    }
}
