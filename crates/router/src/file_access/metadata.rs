//! The metadata of a path, found only if that does not wait, or also if it does.
//!
//! Fails with [`MetadataError::WouldWait`] where another thread must look the path up, and else with the error of the
//! system call.

use howdah_blocking_work::mounts;
use howdah_protocol::trusted_path;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Whether an operation may wait for another machine or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// On an event loop.
    Never,
    /// On a thread for such operations.
    Allowed,
}

/// Why there is no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// The look-up may have to wait.
    WouldWait,
    /// The system call failed.
    Failed(Errno),
}

/// The work needs a look-up that may wait: another thread repeats it with [`Waiting::Allowed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldWait;

/// The metadata of a path. `links` is empty or [`AtFlags::SYMLINK_NOFOLLOW`].
///
/// # Errors
/// [`MetadataError::WouldWait`] only with [`Waiting::Never`].
pub fn metadata(path: impl Arg, links: AtFlags, waiting: Waiting) -> Result<Stat, MetadataError> {
    if waiting == Waiting::Allowed || mounts::are_all_local() {
        return Ok(statat(CWD, path, links)?);
    }
    let last = if links.contains(AtFlags::SYMLINK_NOFOLLOW) { OFlags::NOFOLLOW } else { OFlags::empty() };
    local_metadata(open_cached(CWD, path, last, ResolveFlags::empty())?)
}

/// The metadata of the file that a process with this root directory finds under the path.
///
/// # Errors
/// [`MetadataError::WouldWait`] only with [`Waiting::Never`].
pub fn metadata_below(rootfs: &Path, path: impl Arg, waiting: Waiting) -> Result<Stat, MetadataError> {
    if waiting == Waiting::Allowed || mounts::are_all_local() {
        let root = rustix::fs::openat(CWD, rootfs, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?;
        return Ok(fstat(&found)?);
    }
    let root = open_cached(CWD, rootfs, OFlags::empty(), ResolveFlags::empty())?;
    local_metadata(open_cached(std::os::fd::AsFd::as_fd(&root), path, OFlags::empty(), ResolveFlags::IN_ROOT)?)
}

/// Opens a Unix socket of the configuration as [`trusted_path::socket`] does, only if no operation on the file waits. `None`: another
/// thread must do it.
///
/// # Errors
/// As for [`trusted_path::socket`].
pub fn open_socket(path: &Path) -> io::Result<Option<OwnedFd>> {
    // A path without links is one look-up.
    match open_cached(CWD, path, OFlags::empty(), ResolveFlags::NO_SYMLINKS).and_then(local) {
        Ok(file) if fstat(&file)?.st_nlink == 1 => return Ok(Some(file)),
        Ok(_) | Err(MetadataError::WouldWait | MetadataError::Failed(Errno::LOOP)) => {}
        Err(MetadataError::Failed(error)) => return Err(error.into()),
    }
    if mounts::are_all_local() { trusted_path::socket(path).map(Some) } else { Ok(None) }
}

/// Opens a path that the kernel has in its cache.
fn open_cached(
    folder: BorrowedFd<'_>,
    path: impl Arg,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, MetadataError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    openat2(folder, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED).map_err(|error| match error {
        // Not in the cache; or the kernel, or a filter of system calls, does not know openat2 or its flag.
        Errno::AGAIN | Errno::INVAL | Errno::NOSYS | Errno::PERM => MetadataError::WouldWait,
        error => error.into(),
    })
}

fn local_metadata(file: OwnedFd) -> Result<Stat, MetadataError> {
    Ok(fstat(local(file)?)?)
}

fn local(file: OwnedFd) -> Result<OwnedFd, MetadataError> {
    if mounts::never_waits(&file) { Ok(file) } else { Err(MetadataError::WouldWait) }
}

// === impl MetadataError ===

impl From<Errno> for MetadataError {
    fn from(error: Errno) -> MetadataError {
        MetadataError::Failed(error)
    }
}
