//! Where bytes wait for someone slower: in memory, and beyond a limit in an unlinked temporary file.
//!
//! A response is taken out of its slot as fast as PHP writes it, so that a slow client never holds a worker. Writing to
//! the file goes to the page cache; when the disk is full the push fails, and so does the response.

use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A queue of bytes.
#[derive(Debug)]
pub struct Spool {
    memory: Vec<u8>,
    memory_limit: usize,
    file: Option<Overflow>,
    folder: Option<PathBuf>,
}

#[derive(Debug)]
struct Overflow {
    file: File,
    written: u64,
    read: u64,
}

/// The most that [`Spool::take`] returns at one time from the file, in bytes.
const PORTION: u64 = 128 * 1024;

// === impl Spool ===

impl Spool {
    /// A queue that keeps up to `memory_limit` bytes in memory, the rest in a file in `folder`.
    pub fn new(memory_limit: usize, folder: Option<&Path>) -> Spool {
        Spool { memory: Vec::new(), memory_limit, file: None, folder: folder.map(Path::to_owned) }
    }

    /// How many bytes wait.
    pub fn len(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, |overflow| overflow.written - overflow.read)
    }

    /// Memory to append to directly, while nothing waits in the file and the limit is not reached.
    pub fn memory(&mut self) -> Option<&mut Vec<u8>> {
        (self.file.is_none() && self.memory.len() < self.memory_limit).then_some(&mut self.memory)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When they don't fit into memory, and the file can't be made or written.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() <= self.memory_limit {
            self.memory.extend_from_slice(bytes);
            return Ok(());
        }
        let overflow = match &mut self.file {
            Some(overflow) => overflow,
            None => {
                let file = match &self.folder {
                    Some(folder) => tempfile::tempfile_in(folder)?,
                    None => tempfile::tempfile()?,
                };
                self.file.insert(Overflow { file, written: 0, read: 0 })
            }
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
        }
        Ok(portion.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came_across_the_limit() {
        let mut spool = Spool::new(10, None);
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
        let mut spool = Spool::new(4, None);
        spool.push(b"123456").unwrap();
        assert!(spool.memory().is_none());
        assert_eq!(spool.take().unwrap(), &b"123456"[..]);
        assert!(spool.memory().is_some());
    }
}
