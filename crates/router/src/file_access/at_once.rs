//! Opens paths only if that does not wait.
//!
//! Fails with [`PathError::WouldWait`] where another thread must do it, and else with the error of the system call.

use howdah_blocking_work::mounts;
use howdah_protocol::{descriptor_path, trusted_path};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlink};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Whether an operation may wait for another machine or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// On an event loop.
    Never,
    /// On a thread for such operations.
    Allowed,
}

/// Why a path was not opened, or has no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The look-up may have to wait.
    WouldWait,
    /// The system call failed.
    Failed(Errno),
}

/// The work needs a look-up that may wait: another thread repeats it with [`Waiting::Allowed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WouldWait;

/// Opens a path below a folder, only if that does not wait. `flags` neither write nor create, and do not have `O_NOFOLLOW`.
///
/// The file that was found and whose mount was checked is the one that is opened: a link that is swapped meanwhile has no effect.
///
/// # Errors
/// [`PathError::WouldWait`] if another thread must open it, or the error of the system call.
pub fn open_at_once(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, PathError> {
    let found = local(open_cached(folder, path, flags & OFlags::DIRECTORY, resolve)?)?;
    if flags.contains(OFlags::PATH) {
        return Ok(found);
    }
    Ok(open(descriptor_path(&found), flags, Mode::empty())?)
}

/// Where a path leads, as [`howdah_protocol::canonical`] has it, only if that does not wait.
///
/// # Errors
/// As for [`open_at_once`].
pub fn canonical_at_once(path: &Path) -> Result<PathBuf, PathError> {
    let target = open_cached(CWD, path, OFlags::empty(), ResolveFlags::empty())?;
    let path = readlink(descriptor_path(&target), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
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
        Ok(_) | Err(PathError::WouldWait | PathError::Failed(Errno::LOOP)) => {}
        Err(PathError::Failed(error)) => return Err(error.into()),
    }
    if mounts::are_all_local() { trusted_path::socket(path).map(Some) } else { Ok(None) }
}

/// Opens a path that the kernel has in its cache.
pub(super) fn open_cached(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, PathError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    openat2(folder, path, flags, Mode::empty(), resolve | ResolveFlags::CACHED).map_err(|error| match error {
        // Not in the cache; or the kernel, or a filter of system calls, does not know openat2 or its flag.
        Errno::AGAIN | Errno::INVAL | Errno::NOSYS | Errno::PERM => PathError::WouldWait,
        error => error.into(),
    })
}

/// The file, if it is in a file system that never waits.
pub(super) fn local(file: OwnedFd) -> Result<OwnedFd, PathError> {
    if mounts::never_waits(&file) { Ok(file) } else { Err(PathError::WouldWait) }
}

// === impl Waiting ===

impl Waiting {
    /// While all mounts are local, nothing waits, and everything is allowed.
    pub fn at_present(self) -> Waiting {
        if mounts::are_all_local() { Waiting::Allowed } else { self }
    }
}

// === impl PathError ===

impl From<Errno> for PathError {
    fn from(error: Errno) -> PathError {
        PathError::Failed(error)
    }
}
