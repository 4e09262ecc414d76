//! The metadata of a path, found only if that does not wait, or also if it does.

use crate::file_access::at_once::{PathError, Waiting, local, open_cached};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::path::Arg;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The metadata of a path. `links` is empty or [`AtFlags::SYMLINK_NOFOLLOW`].
///
/// # Errors
/// [`PathError::WouldWait`] only with [`Waiting::Never`].
pub fn metadata(path: impl Arg, links: AtFlags, waiting: Waiting) -> Result<Stat, PathError> {
    if waiting.at_present() == Waiting::Allowed {
        return Ok(statat(CWD, path, links)?);
    }
    let last = if links.contains(AtFlags::SYMLINK_NOFOLLOW) { OFlags::NOFOLLOW } else { OFlags::empty() };
    local_metadata(open_cached(CWD, path, last, ResolveFlags::empty())?)
}

/// The metadata of the file that a process with this root directory finds under the path.
///
/// # Errors
/// [`PathError::WouldWait`] only with [`Waiting::Never`].
pub fn metadata_below(rootfs: &Path, path: impl Arg, waiting: Waiting) -> Result<Stat, PathError> {
    if waiting.at_present() == Waiting::Allowed {
        let root = rustix::fs::openat(CWD, rootfs, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let found = openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)?;
        return Ok(fstat(&found)?);
    }
    let root = open_cached(CWD, rootfs, OFlags::empty(), ResolveFlags::empty())?;
    local_metadata(open_cached(&root, path, OFlags::empty(), ResolveFlags::IN_ROOT)?)
}

fn local_metadata(file: OwnedFd) -> Result<Stat, PathError> {
    Ok(fstat(local(file)?)?)
}
