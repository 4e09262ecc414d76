//! Where bytes wait for someone slower: in memory, and beyond a limit in an unlinked temporary file.
//!
//! A response is taken out of its slot as fast as PHP writes it, so that a slow client never holds a worker. That ends
//! where the spool is full ([`Spool::has_room`]): then the slot is left alone, and PHP waits for the client. What has
//! been read gives its disk space back on the way, and the file goes when all of it has been read.
//!
//! Writing to the file goes to the page cache; when the disk is full the push fails, and so does the response.

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
    limits: Limits,
    file: Option<Overflow>,
    folder: Option<PathBuf>,
}

/// How much may wait, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In memory, before a file is made.
    pub memory: usize,
    /// In memory and on the disk, before the queue is full.
    pub total: u64,
}

/// A file: `freed` ≤ `read` ≤ `written`, as offsets.
#[derive(Debug)]
struct Overflow {
    file: File,
    written: u64,
    read: u64,
    /// What is before it takes no disk space any more.
    freed: u64,
    /// Whether the file system can give space back before the file's end.
    can_free: bool,
}

/// The most that [`Spool::take`] returns at one time from the file, in bytes.
const PORTION: u64 = 128 * 1024;
/// How much is read from the file before its space is given back, in bytes.
const FREE_BYTES: u64 = 8 * 1024 * 1024;

// === impl Spool ===

impl Spool {
    /// An empty queue, whose file will be in `folder`.
    pub fn new(limits: Limits, folder: Option<&Path>) -> Spool {
        Spool { memory: Vec::new(), limits, file: None, folder: folder.map(Path::to_owned) }
    }

    /// How many bytes wait.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.read)
    }

    /// Whether more should be appended. (It can be: the limit is for whoever can wait.)
    pub fn has_room(&self) -> bool {
        let on_disk = self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.freed);
        self.memory.len() as u64 + on_disk < self.limits.total
    }

    /// Memory to append to directly, while nothing waits in the file and the limit is not reached.
    pub fn memory(&mut self) -> Option<&mut Vec<u8>> {
        (self.file.is_none() && self.memory.len() < self.limits.memory).then_some(&mut self.memory)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When they don't fit into memory, and the file can't be made or written.
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

    /// Takes the oldest bytes; empty when none wait.
    ///
    /// # Errors
    /// When the file can't be read.
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

    /// Gives back the space of what has been read, if that is worth a system call. A file system that can't (some network
    /// file systems) gives it back with the file.
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
        Spool::new(Limits { memory, total }, None)
    }

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came_across_the_limit() {
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
    fn memory_is_open_again_when_the_file_is_read() {
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
            // Without holes, the space comes back with the whole file.
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
