//! A channel's memory: a sealed memfd, mapped.
//!
//! The seals forbid to resize it: a worker that could truncate the file would kill the router with SIGBUS. All accesses go
//! through atomics, because other processes may write at the same time; no reference to shared plain bytes ever exists.
//! Offsets come from [`layout`](super::layout), never from the shared memory. They are checked here once more: a wrong
//! offset is a bug in howdah and panics.

#![allow(unsafe_code)] // maps memory, and makes references to the atomics in it

use crate::sync::{AtomicU32, AtomicU64};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping, shared with other processes.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping lives as long as the value, and is accessed through atomics only. Other processes race with these
// accesses anyway, so that another thread adds nothing new.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

// === impl Mapping ===

impl Mapping {
    /// Creates a memfd of `len` zero bytes whose size is sealed.
    pub fn create(len: usize) -> io::Result<OwnedFd> {
        let fd = rustix::fs::memfd_create("howdah-channel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        // It is passed as a descriptor. No other process may open it through a name in /proc.
        rustix::fs::fchmod(&fd, Mode::empty())?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(fd)
    }

    /// Maps `len` bytes of `fd`.
    ///
    /// # Errors
    /// When the file has another size, or its size is not sealed.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Mapping> {
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
        Ok(Mapping { start: NonNull::new(start.cast()).expect("mmap never returns null"), len })
    }

    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `at` checked that the word lies within the mapping, aligned; other processes may change an atomic.
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

    fn at(&self, offset: usize, len: usize, align: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(align) && offset.checked_add(len).is_some_and(|end| end <= self.len),
            "an offset outside of the channel's memory"
        );
        // SAFETY: just checked to be within the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and no reference into it outlives `self`. An error would only leak it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(all(test, not(miri)))] // Miri has no memfd
mod tests {
    use super::*;

    #[test]
    fn the_size_can_not_be_changed() {
        let fd = Mapping::create(8192).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
        assert!(Mapping::map(&fd, 4096).is_err());
        assert!(Mapping::map(&fd, 8192).is_ok());
    }

    #[test]
    fn a_file_that_is_not_sealed_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        assert!(Mapping::map(&file, 8192).is_err());
    }
}
