//! The metadata of a path, or the open file, only if that does not wait, or also if it does.
//!
//! Fails with [`MetadataError::WouldWait`] where another thread must look the path up, and else with the error of the
//! system call.

use howdah_blocking_work::mounts;
use howdah_protocol::{descriptor_path, trusted_path};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, readlink, statat};
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

/// Why there is no metadata, or no open file.
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
    if waiting.at_present() == Waiting::Allowed {
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
    if waiting.at_present() == Waiting::Allowed {
        let root = rustix::fs::openat(CWD, rootfs, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?;
        return Ok(fstat(&found)?);
    }
    let root = open_cached(CWD, rootfs, OFlags::empty(), ResolveFlags::empty())?;
    local_metadata(open_cached(&root, path, OFlags::empty(), ResolveFlags::IN_ROOT)?)
}

/// Opens a path below a folder, only if that does not wait. `flags` neither write nor create, and do not have `O_NOFOLLOW`.
///
/// The file that was found and whose mount was checked is the one that is opened: a link that is swapped meanwhile has no effect.
///
/// # Errors
/// As for [`metadata`].
pub fn open_at_once(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, MetadataError> {
    let found = local(open_cached(folder, path, flags & OFlags::DIRECTORY, resolve)?)?;
    if flags.contains(OFlags::PATH) {
        return Ok(found);
    }
    Ok(open(descriptor_path(&found), flags, Mode::empty())?)
}

/// Where a path leads, as [`howdah_protocol::canonical`] has it, only if that does not wait.
///
/// # Errors
/// As for [`metadata`].
pub fn canonical_at_once(path: &Path) -> Result<PathBuf, MetadataError> {
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
        Ok(_) | Err(MetadataError::WouldWait | MetadataError::Failed(Errno::LOOP)) => {}
        Err(MetadataError::Failed(error)) => return Err(error.into()),
    }
    if mounts::are_all_local() { trusted_path::socket(path).map(Some) } else { Ok(None) }
}

/// Opens a path that the kernel has in its cache.
fn open_cached(
    folder: impl AsFd,
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

// === impl Waiting ===

impl Waiting {
    /// While all mounts are local, nothing waits, and everything is allowed.
    pub fn at_present(self) -> Waiting {
        if mounts::are_all_local() { Waiting::Allowed } else { self }
    }
}

// === impl MetadataError ===

impl From<Errno> for MetadataError {
    fn from(error: Errno) -> MetadataError {
        MetadataError::Failed(error)
    }
}
