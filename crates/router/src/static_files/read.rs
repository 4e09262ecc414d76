//! Reading files without stalling the event loop.
//!
//! `preadv2` with `RWF_NOWAIT` gives what the page cache has and says so when it has nothing; only then a thread of
//! tokio's blocking pool has to wait for the disk. Some file systems (overlayfs, some network file systems) do not know
//! the flag: there [`chunk_now`] says [`NotNow::Unsupported`] and every chunk is read on the pool.
//!
//! A read that brings nothing although the file should go on is [`ended_early`]: the file was cut meanwhile.

use std::{
    cell::RefCell,
    io::{self, IoSliceMut},
    mem,
    os::fd::OwnedFd,
};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};

/// The most that is read and sent at once, in bytes. A connection whose client is slow holds as many chunks as hyper
/// buffers.
pub(super) const CHUNK: usize = 64 * 1024;

/// The chunks that a thread keeps for its next reads; more are given back to the allocator.
const MAX_KEPT: usize = 64;

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// The disk has to be waited for.
    Cold,
    /// The file system cannot read without waiting, or the read failed: a read that waits will tell.
    Unsupported,
}

/// A buffer of which the first bytes have been read from a file.
///
/// It is no [`Bytes`] yet, because those give their buffer back to the thread that drops them, and the buffers are kept
/// by the threads that serve, not by those of the blocking pool.
pub(super) struct Filled {
    buffer: Vec<u8>,
    /// Bytes.
    length: usize,
}

/// Reads up to `length` bytes, and no more than a chunk, if they are in memory. An empty answer is the end of the file.
pub(super) fn chunk_now(file: &OwnedFd, offset: u64, length: u64) -> Result<Bytes, NotNow> {
    let mut buffer = take_buffer(length);
    match read_now(file, &mut buffer, offset) {
        Ok(length) => Ok(Filled { buffer, length }.into_bytes()),
        Err(error) => {
            keep_buffer(buffer);
            Err(error)
        }
    }
}

/// Like [`chunk_now`], but waits for the disk.
pub(super) fn chunk_waiting(file: &OwnedFd, offset: u64, mut buffer: Vec<u8>) -> io::Result<Filled> {
    let length = retry_on_intr(|| pread(file, buffer.as_mut_slice(), offset))?;
    Ok(Filled { buffer, length })
}

/// The whole file, of which the size is known; `None` if it is not in memory or has become shorter.
///
/// Where reading without waiting is not supported, this waits: once, for a file that is going to be kept.
pub(super) fn whole(file: &OwnedFd, size: usize) -> io::Result<Option<Bytes>> {
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
    Ok(Some(Bytes::from(content)))
}

/// A buffer for the next chunk of a file of which `length` bytes are left to be read.
pub(super) fn take_buffer(length: u64) -> Vec<u8> {
    let length = usize::try_from(length).map_or(CHUNK, |length| length.min(CHUNK));
    if length < CHUNK {
        return vec![0; length];
    }
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; CHUNK])
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
    /// The bytes; the buffer is used again when nobody needs them any more.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Chunk(self))
    }
}

struct Chunk(Filled);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0.buffer[..self.0.length]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        keep_buffer(mem::take(&mut self.0.buffer));
    }
}

fn keep_buffer(buffer: Vec<u8>) {
    if buffer.len() < CHUNK {
        return;
    }
    // Fails when the thread is ending; then the buffer just goes.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(buffer);
        }
    });
}

thread_local! {
    /// Buffers of [`CHUNK`] bytes: they need not be cleared again, which costs nearly as much as reading into them.
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

    /// Where reading without waiting is unsupported, the blocking way must give the same.
    fn chunk(file: &OwnedFd, offset: u64, length: u64) -> Bytes {
        let waiting = |_| chunk_waiting(file, offset, take_buffer(length)).unwrap().into_bytes();
        chunk_now(file, offset, length).unwrap_or_else(waiting)
    }

    #[test]
    fn a_chunk_is_what_was_asked_for_and_what_there_is() {
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
    fn buffers_are_used_again() {
        let file = file(&vec![7; CHUNK]);
        let first = Filled { buffer: take_buffer(CHUNK as u64), length: CHUNK }.into_bytes();
        let address = first.as_ptr();
        drop(first);
        assert_eq!(chunk(&file, 0, CHUNK as u64).as_ptr(), address);
    }

    #[test]
    fn the_whole_is_the_whole_or_nothing() {
        let file = file(b"0123456789");
        assert_eq!(whole(&file, 10).unwrap().as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(whole(&file, 4).unwrap().as_deref(), Some(&b"0123"[..]));
        assert_eq!(whole(&file, 0).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(whole(&file, 11).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_says_why_when_it_is_waited_for() {
        let folder = OwnedFd::from(File::open(".").unwrap());
        assert_eq!(chunk_now(&folder, 0, 1), Err(NotNow::Unsupported));
        assert!(chunk_waiting(&folder, 0, take_buffer(1)).is_err());
    }
}
