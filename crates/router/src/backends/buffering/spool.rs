//! A buffer for bytes whose reader is slow: in memory, and beyond a limit in an unlinked temporary file.
//!
//! A response is taken out of its slot as fast as PHP writes it, so that a slow client never holds a worker. When the
//! spool is full ([`Spool::has_room`]), the slot is not read, and PHP waits for the client. Disk space is freed while the
//! file is read, and the file is closed when all of it has been read.
//!
//! Writes go to the page cache. When the disk is full, the push fails, and so does the response.

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A queue of bytes.
#[derive(Debug)]
pub struct Spool {
    memory: Vec<u8>,
    limits: SpoolLimits,
    file: Option<Overflow>,
    folder: Option<PathBuf>,
}

/// The limits of a spool, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SpoolLimits {
    /// In memory: more bytes go to a file.
    pub memory: usize,
    /// In memory and on the disk: more bytes have no room.
    pub total: u64,
}

/// A file: `freed` ≤ `read` ≤ `written`, as offsets.
#[derive(Debug)]
struct Overflow {
    file: File,
    written: u64,
    read: u64,
    /// The disk space before this offset was freed.
    freed: u64,
    /// Whether the file system can free a part of the file.
    can_free: bool,
}

/// The limit for one [`Spool::take`] from the file, in bytes.
const PORTION: u64 = 128 * 1024;
/// How many bytes are read from the file before their disk space is freed.
const FREE_BYTES: u64 = 8 * 1024 * 1024;

// === impl Spool ===

impl Spool {
    /// An empty spool. Its file will be in `folder`.
    pub fn new(limits: SpoolLimits, folder: Option<&Path>) -> Spool {
        Spool { memory: Vec::new(), limits, file: None, folder: folder.map(Path::to_owned) }
    }

    /// How many bytes are in the spool.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.read)
    }

    /// Whether all bytes are in memory: one [`Self::take`] returns them.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Whether more bytes should be pushed. A push beyond the limit works: the caller waits if it can.
    pub fn has_room(&self) -> bool {
        let on_disk = self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.freed);
        self.memory.len() as u64 + on_disk < self.limits.total
    }

    /// The memory, for direct appends, while there is no file and the memory limit is not reached.
    pub fn memory(&mut self) -> Option<&mut Vec<u8>> {
        (self.file.is_none() && self.memory.len() < self.limits.memory).then_some(&mut self.memory)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When they do not fit into memory, and the file cannot be created or written.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() <= self.limits.memory {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let overflow = match &mut self.file {
            Some(overflow) => overflow,
            None => self.file.insert(Overflow::new(self.folder.as_deref())?),
        };
        overflow.file.write_all_at(bytes, overflow.written)?;
        overflow.written += bytes.len() as u64;
        Ok(())
    }

    /// Takes the oldest bytes; empty when the spool is empty.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn take(&mut self) -> io::Result<Bytes> {
        if !self.memory.is_empty() {
            return Ok(std::mem::take(&mut self.memory).into());
        }
        let Some(overflow) = &mut self.file else { return Ok(Bytes::new()) };
        let mut portion = vec![0; (overflow.written - overflow.read).min(PORTION) as usize];
        overflow.file.read_exact_at(&mut portion, overflow.read)?;
        overflow.read += portion.len() as u64;
        if overflow.read == overflow.written {
            self.file = None;
        } else {
            overflow.free();
        }
        Ok(portion.into())
    }
}

// === impl Overflow ===

impl Overflow {
    fn new(folder: Option<&Path>) -> io::Result<Overflow> {
        let file = match folder {
            Some(folder) => tempfile::tempfile_in(folder)?,
            None => tempfile::tempfile()?,
        };
        Ok(Overflow { file, written: 0, read: 0, freed: 0, can_free: true })
    }

    /// Frees the disk space of the bytes that have been read, if that is worth a system call. Some network file systems
    /// cannot: they free the space when the file is closed.
    fn free(&mut self) {
        if !self.can_free || self.read - self.freed < FREE_BYTES {
            return;
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, self.freed, self.read - self.freed) {
            Ok(()) => self.freed = self.read,
            Err(_) => self.can_free = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn spool(memory: usize, total: u64) -> Spool {
        Spool::new(SpoolLimits { memory, total }, None)
    }

    #[test]
    fn bytes_keep_their_order_across_the_memory_limit() {
        let mut spool = spool(10, 1 << 30);
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for round in 0..100u8 {
            let bytes = vec![round; usize::from(round) % 7];
            expected.extend_from_slice(&bytes);
            spool.push(&bytes).unwrap();
            if round % 9 == 0 {
                got.extend_from_slice(&spool.take().unwrap());
            }
        }
        while spool.len() > 0 {
            got.extend_from_slice(&spool.take().unwrap());
        }
        assert_eq!(got, expected);
        assert!(spool.take().unwrap().is_empty());
    }

    #[test]
    fn memory_is_used_again_when_the_file_has_been_read() {
        let mut spool = spool(4, 1 << 30);
        spool.push(b"123456").unwrap();
        assert!(spool.memory().is_none());
        assert_eq!(spool.take().unwrap(), &b"123456"[..]);
        assert!(spool.memory().is_some());
    }

    #[test]
    fn a_full_spool_has_room_again_as_it_is_read() {
        for can_free in [true, false] {
            let mut spool = spool(10, 4 * FREE_BYTES);
            let block = vec![7; 1 << 20];
            let mut pushed = 0;
            while spool.has_room() {
                spool.push(&block).unwrap();
                pushed += block.len() as u64;
            }
            assert_eq!(pushed, 4 * FREE_BYTES);
            spool.file.as_mut().unwrap().can_free = can_free;
            let mut read = 0;
            while !spool.has_room() {
                read += spool.take().unwrap().len() as u64;
            }
            // Without holes, the space is freed with the whole file.
            assert_eq!(read, if can_free { FREE_BYTES } else { pushed });
        }
    }

    #[test]
    fn a_client_that_never_catches_up_does_not_fill_the_disk() {
        let mut spool = spool(10, 4 * FREE_BYTES);
        let block = vec![7; 1 << 20];
        let mut largest = 0;
        for _ in 0..12 {
            while spool.has_room() {
                spool.push(&block).unwrap();
            }
            while !spool.has_room() {
                assert!(!spool.take().unwrap().is_empty());
            }
            let overflow = spool.file.as_ref().unwrap();
            if overflow.can_free {
                largest = largest.max(overflow.file.metadata().unwrap().blocks() * 512);
            }
        }
        assert!(largest <= 4 * FREE_BYTES + (1 << 20), "{largest}");
    }
}
