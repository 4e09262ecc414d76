//! A channel's memory: a sealed memfd, mapped.
//!
//! The seals forbid to resize it: a worker that could truncate the file would kill the router with SIGBUS. Everything
//! that other processes may change meanwhile is read and written through atomics, or copied as raw bytes to and from
//! private memory; no reference to shared plain bytes ever exists. Offsets come from [`crate::layout`], never from the
//! shared memory, and are checked here once more: a wrong one is a bug of ours and panics.

use crate::sync::{AtomicU32, AtomicU64};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping, shared with other processes.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping lives as long as the value; it is accessed through atomics, or by copies that other processes may
// race with anyway, so that another thread adds nothing new.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

// === impl Memory ===

impl Memory {
    /// Creates a memfd of `len` zero bytes whose size is sealed.
    pub fn create(len: usize) -> io::Result<OwnedFd> {
        let fd = rustix::fs::memfd_create("howdah-channel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // It is handed over as a descriptor. Nobody else opens it, by whatever name in /proc.
        rustix::fs::fchmod(&fd, Mode::empty())?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(fd)
    }

    /// Maps `len` bytes of `fd`.
    ///
    /// # Errors
    /// When the file has another size, or its size is not sealed.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Memory> {
        let size = rustix::fs::fstat(&fd)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        if size as u64 != len as u64 || !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not a channel's memory: wrong size, or not sealed",
            ));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)?
        };
        Ok(Memory { start: NonNull::new(start.cast()).expect("mmap never returns null"), len })
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `at` checked that the word lies within the mapping, aligned; atomics may be changed by others.
        unsafe { &*self.at(offset, 4, 4).cast() }
    }

    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.at(offset, 8, 8).cast() }
    }

    pub fn u64s(&self, offset: usize, count: usize) -> &[AtomicU64] {
        // SAFETY: as above, for `count` words that follow each other.
        unsafe { std::slice::from_raw_parts(self.at(offset, count * 8, 8).cast(), count) }
    }

    /// Copies `bytes` into the mapping.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len(), 1);
        // SAFETY: `at` checked the range; private memory does not overlap a shared mapping. Another process may read
        // or write the same bytes meanwhile: it then sees or leaves a mixture, and whoever reads them validates.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Appends `len` bytes of the mapping to `out`.
    pub fn copy_out(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        let from = self.at(offset, len, 1);
        out.reserve(len);
        // SAFETY: `at` checked the range and `reserve` made room; see `copy_in` for races. All `len` bytes are
        // initialised by the copy before the length says so.
        unsafe {
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Fills `out` from the mapping.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len(), 1);
        // SAFETY: as for `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    fn at(&self, offset: usize, len: usize, align: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(align) && offset.checked_add(len).is_some_and(|end| end <= self.len),
            "an offset outside of the channel's memory"
        );
        // SAFETY: just checked to be within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and no reference into it outlives `self`. An error would only leak it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_can_not_be_changed() {
        let fd = Memory::create(8192).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
        assert!(Memory::map(&fd, 4096).is_err());
        assert!(Memory::map(&fd, 8192).is_ok());
    }

    #[test]
    fn a_file_that_is_not_sealed_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        assert!(Memory::map(&file, 8192).is_err());
    }
}
