//! Reads files without stalling the event loop.
//!
//! `preadv2` with `RWF_NOWAIT` returns the bytes that the page cache has, and an error when it has none; only then a
//! thread of tokio's blocking pool waits for the disk. Some file systems (overlayfs, some network file systems) do not
//! know the flag: there [`chunk_now`] returns [`NotNow::Unsupported`] and every chunk is read on the pool.
//!
//! A whole file in memory counts until its last reference is dropped: those of all threads together have a limit, because
//! a response that its client does not read keeps its content, also when the cache has evicted it.
//!
//! Chunks count, too: a client that takes one byte of each of its responses keeps a chunk of each. When there are many, the
//! next ones are small.
//!
//! A read that returns no bytes before the expected end is [`ended_early`]: the file was cut meanwhile.

use std::{
    cell::RefCell,
    io::{self, IoSliceMut},
    mem,
    os::fd::OwnedFd,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};

use super::cache;
use crate::resources::counted_memory::CountedMemory;
use crate::resources::processors::processors;

/// The size of one read and one frame, in bytes. A connection with a slow client holds as many chunks as hyper buffers.
pub(super) const CHUNK: usize = 64 * 1024;

/// The number of buffers that a thread keeps for its next reads; more are freed.
const MAX_KEPT: usize = 64;

/// The bytes of whole files in memory that full caches leave for responses.
const MOST_BESIDE_CACHES: usize = 64 * 1024 * 1024;

/// The most bytes of whole files in memory, of all threads.
static MOST_WHOLE: LazyLock<usize> = LazyLock::new(|| processors() * cache::CAPACITY + MOST_BESIDE_CACHES);
static WHOLE: AtomicUsize = AtomicUsize::new(0);

/// The bytes of chunks of all threads, beyond which they are small.
const MOST_IN_CHUNKS: usize = 96 * 1024 * 1024;
/// A chunk takes this part of what is free, at most.
const PART_OF_FREE: usize = 8;
/// A chunk without free memory.
const SMALL_CHUNK: usize = 16 * 1024;
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// The bytes are not in memory: a read has to wait for the disk.
    Cold,
    /// The file system cannot read without waiting, or the read failed: a read that waits returns the error.
    Unsupported,
}

/// A buffer for a chunk.
pub(super) struct ChunkBuffer {
    bytes: Vec<u8>,
    _counted: CountedMemory,
}

/// A buffer whose first bytes were read from a file.
///
/// It is not [`Bytes`] yet: `Bytes` return their buffer to the thread that drops them, and the buffers belong to the
/// threads that serve, not to those of the blocking pool.
pub(super) struct Filled {
    buffer: ChunkBuffer,
    /// How many bytes were read.
    length: usize,
}

/// Reads up to `length` bytes, and at most a chunk, if they are in memory. An empty result is the end of the file.
pub(super) fn chunk_now(file: &OwnedFd, offset: u64, length: u64) -> Result<Bytes, NotNow> {
    let mut buffer = take_buffer(length);
    match read_now(file, &mut buffer.bytes, offset) {
        Ok(length) => Ok(Filled { buffer, length }.into_bytes()),
        Err(error) => {
            keep_buffer(buffer.bytes);
            Err(error)
        }
    }
}

/// Like [`chunk_now`], but waits for the disk.
pub(super) fn chunk_waiting(file: &OwnedFd, offset: u64, mut buffer: ChunkBuffer) -> io::Result<Filled> {
    let length = retry_on_intr(|| pread(file, buffer.bytes.as_mut_slice(), offset))?;
    Ok(Filled { buffer, length })
}

/// Reads a whole file of a known size; `None` if it is not in memory or has become shorter, or if too many bytes of other
/// files are in memory.
///
/// If reading without waiting is not supported, this waits: once, because the caller caches the file.
pub(super) fn whole(file: &OwnedFd, size: usize) -> io::Result<Option<Bytes>> {
    let Some(counted) = CountedMemory::take(&WHOLE, size, *MOST_WHOLE) else { return Ok(None) };
    let mut content = vec![0; size];
    let mut filled = 0;
    while filled < size {
        let read = match read_now(file, &mut content[filled..], filled as u64) {
            Ok(read) => read,
            Err(NotNow::Cold) => return Ok(None),
            Err(NotNow::Unsupported) => retry_on_intr(|| pread(file, &mut content[filled..], filled as u64))?,
        };
        if read == 0 {
            return Ok(None);
        }
        filled += read;
    }
    Ok(Some(counted.with(content)))
}

/// A buffer for the next chunk of a file with `length` unread bytes.
pub(super) fn take_buffer(length: u64) -> ChunkBuffer {
    take_counted(&CHUNKS, length)
}

fn take_counted(all: &'static AtomicUsize, length: u64) -> ChunkBuffer {
    let free = MOST_IN_CHUNKS.saturating_sub(all.load(Ordering::Relaxed));
    let most = (free / PART_OF_FREE).clamp(SMALL_CHUNK, CHUNK);
    let length = usize::try_from(length).map_or(most, |length| length.min(most));
    let kept = if length == CHUNK { KEPT.with_borrow_mut(Vec::pop) } else { None };
    ChunkBuffer { bytes: kept.unwrap_or_else(|| vec![0; length]), _counted: CountedMemory::count(all, length) }
}

/// The error of a file that ended before its announced length.
pub(super) fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}

fn read_now(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, NotNow> {
    let read = || preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
    retry_on_intr(read).map_err(|error| if error == Errno::AGAIN { NotNow::Cold } else { NotNow::Unsupported })
}

impl Filled {
    /// The bytes. Their buffer is reused when the last reference to them is dropped.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Chunk(self))
    }
}

struct Chunk(Filled);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0.buffer.bytes[..self.0.length]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        keep_buffer(mem::take(&mut self.0.buffer.bytes));
    }
}

fn keep_buffer(buffer: Vec<u8>) {
    if buffer.len() < CHUNK {
        return;
    }
    // Fails while the thread exits; the buffer is freed then.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(buffer);
        }
    });
}

thread_local! {
    /// Buffers of [`CHUNK`] bytes. A reused buffer need not be cleared, which costs nearly as much as reading into it.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Write};

    fn file(content: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.into()
    }

    /// If reading without waiting is unsupported, the blocking read must return the same bytes.
    fn chunk(file: &OwnedFd, offset: u64, length: u64) -> Bytes {
        let waiting = |_| chunk_waiting(file, offset, take_buffer(length)).unwrap().into_bytes();
        chunk_now(file, offset, length).unwrap_or_else(waiting)
    }

    #[test]
    fn a_chunk_ends_at_the_requested_length_or_at_the_end_of_the_file() {
        let file = file(b"0123456789");
        for (offset, length, expected) in
            [(0, 10, "0123456789"), (3, 2, "34"), (8, 100, "89"), (10, 1, ""), (50, 1, "")]
        {
            assert_eq!(chunk(&file, offset, length), expected, "{offset} {length}");
        }
    }

    #[test]
    fn a_chunk_has_a_limit() {
        let file = file(&vec![7; CHUNK + 1]);
        assert!(chunk(&file, 0, u64::MAX).len() <= CHUNK);
        assert!(chunk(&file, 0, CHUNK as u64 + 1).iter().all(|&byte| byte == 7));
    }

    #[test]
    fn chunks_are_small_while_clients_keep_many() {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let kept: Vec<_> = (0..4000).map(|_| take_counted(&ALL, u64::MAX)).collect();
        assert!(kept[0].bytes.len() == CHUNK && kept[3999].bytes.len() == SMALL_CHUNK);
        assert_eq!(take_counted(&ALL, 10).bytes.len(), 10);
        let all: usize = kept.iter().map(|buffer| buffer.bytes.len()).sum();
        assert!(ALL.load(Ordering::Relaxed) == all && all < MOST_IN_CHUNKS + 3000 * SMALL_CHUNK, "{all}");
        drop(kept);
        assert!(ALL.load(Ordering::Relaxed) == 0 && take_counted(&ALL, u64::MAX).bytes.len() == CHUNK);
    }

    #[test]
    fn buffers_are_reused() {
        let file = file(&vec![7; CHUNK]);
        let first = Filled { buffer: take_buffer(CHUNK as u64), length: CHUNK }.into_bytes();
        let address = first.as_ptr();
        drop(first);
        assert_eq!(chunk(&file, 0, CHUNK as u64).as_ptr(), address);
    }

    #[test]
    fn whole_returns_the_whole_file_or_nothing() {
        let file = file(b"0123456789");
        assert_eq!(whole(&file, 10).unwrap().as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(whole(&file, 4).unwrap().as_deref(), Some(&b"0123"[..]));
        assert_eq!(whole(&file, 0).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(whole(&file, 11).unwrap(), None);
    }

    #[test]
    fn a_read_that_waits_returns_the_error() {
        let folder = OwnedFd::from(File::open(".").unwrap());
        assert_eq!(chunk_now(&folder, 0, 1), Err(NotNow::Unsupported));
        assert!(chunk_waiting(&folder, 0, take_buffer(1)).is_err());
    }
}
