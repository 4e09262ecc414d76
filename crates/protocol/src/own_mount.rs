//! Opens a file below a folder of ours, where other users own folders: neither follows a link nor enters a mount.
//!
//! The user who owns a folder can mount a file system over it, or over a file in it (`fusermount3`), and let it hang. Without
//! such a mount, the kernel opens the file without waiting for another process.
//!
//! A kernel or a filter of system calls without `openat2` follows no link at the end, but enters a mount.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens the file. No user but ours can replace the folder `ours`.
///
/// # Errors
/// Of the system. `XDEV`: a mount; `LOOP`: a link, except at the end with `PATH` among the flags.
pub fn open(ours: &Path, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let ours = openat(CWD, ours, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(&ours, below, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => openat(&ours, below, flags, Mode::empty()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_mounts_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        symlink("folder", folder.path().join("link")).unwrap();
        let open_folder = |ours: &Path, name: &str| open(ours, Path::new(name), OFlags::DIRECTORY).map(drop);
        assert_eq!(open_folder(folder.path(), "folder"), Ok(()));
        assert_eq!(open_folder(folder.path(), "link/."), Err(Errno::LOOP));
        assert!(open_folder(folder.path(), "link").is_err());
        assert_eq!(open_folder(Path::new("/"), "proc"), Err(Errno::XDEV));
    }
}
