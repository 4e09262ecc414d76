//! The file of a listener's Unix socket. The path may be in a folder of another user, and in a file system that hangs.

use super::stream_socket::stream_socket;
use crate::os::files::hanging::{GivenUp, TIMEOUT, clean_up, within_if_it_may_hang};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix};
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The default mode of a Unix socket: its owner and its group may connect.
pub(super) const SOCKET_MODE: u32 = 0o660;

/// The access to the file of a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Its owner; `None`: our own user.
    pub user: Option<u32>,
    /// Its group; `None`: the one with which the file was created: our own group, or that of a folder with the setgid
    /// bit.
    pub group: Option<u32>,
    /// Its mode; `None`: [`SOCKET_MODE`].
    pub mode: Option<u32>,
}

/// The file of a Unix socket. It is removed with the listener, unless another process has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile(Place);

#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    device_and_inode: (u64, u64),
    /// The group with which it was created.
    group: u32,
}

// === impl SocketFile ===

impl SocketFile {
    /// A socket that is bound to this path. Its file has this mode.
    ///
    /// # Errors
    /// Of the system, or when the file system does not answer.
    pub(super) fn bind(path: &Path, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
        let owned = path.to_owned();
        within_if_it_may_hang(path, TIMEOUT, move |given_up| bind(owned, mode, given_up))
    }

    /// Sets owner, group and mode of our own file, and of no other that is there now.
    ///
    /// # Errors
    /// As above.
    pub(super) fn set_access(&self, access: SocketAccess) -> io::Result<()> {
        let place = self.0.clone();
        within_if_it_may_hang(&self.0.path, TIMEOUT, move |_| place.set_access(access))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let place = self.0.clone();
        // The next start removes one that stays.
        clean_up(&self.0.path, move || drop(place.remove()));
    }
}

// === impl Place ===

impl Place {
    fn set_access(&self, access: SocketAccess) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_dev, stat.st_ino) != self.device_and_inode {
            return Err(replaced());
        }
        let wanted =
            (access.user.unwrap_or_else(|| rustix::process::geteuid().as_raw()), access.group.unwrap_or(self.group));
        if (stat.st_uid, stat.st_gid) != wanted {
            let (user, group) = (Uid::from_raw(wanted.0), Gid::from_raw(wanted.1));
            rustix::fs::chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
        }
        let mode = access.mode.unwrap_or(SOCKET_MODE);
        if stat.st_mode & 0o7777 != mode {
            // A descriptor without access has no other name for chmod.
            rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        let found = self.path.symlink_metadata()?;
        if (found.dev(), found.ino()) == self.device_and_inode { std::fs::remove_file(&self.path) } else { Ok(()) }
    }
}

fn bind(path: PathBuf, mode: u32, given_up: &GivenUp) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(&path)?;
    remove_stale(&path, &address, given_up)?;
    let fd = stream_socket(AddressFamily::UNIX)?;
    // The kernel gives the file this mode, less the mask of the process, which belongs to other threads, too. Where it does not, the
    // usual mask keeps others out until the mode is set.
    let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode));
    given_up.check()?;
    rustix::net::bind(&fd, &address)?;
    let found = own_socket_file(&path)?;
    let place = Place { device_and_inode: (found.dev(), found.ino()), group: found.gid(), path };
    let file = SocketFile(place.clone());
    place.set_access(SocketAccess { mode: Some(mode), ..SocketAccess::default() })?;
    Ok((fd, file))
}

/// The metadata of the file of a socket that we have bound just now. A user who may write to the folder may have put
/// another file there since: one of root's, as a hard link, whose owner and mode we would set.
fn own_socket_file(path: &Path) -> io::Result<Metadata> {
    let found = path.symlink_metadata()?;
    let is_ours =
        found.file_type().is_socket() && found.nlink() == 1 && found.uid() == rustix::process::geteuid().as_raw();
    if is_ours { Ok(found) } else { Err(replaced()) }
}

fn replaced() -> io::Error {
    io::Error::other("another program has replaced its file")
}

/// Removes the file of a socket that has no listener any more.
fn remove_stale(path: &Path, address: &SocketAddrUnix, given_up: &GivenUp) -> io::Result<()> {
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match rustix::net::connect(stream_socket(AddressFamily::UNIX)?, address) {
        Err(Errno::CONNREFUSED) => {
            // The socket may be that of a later attempt, which does not listen yet.
            given_up.check()?;
            std::fs::remove_file(path)
        }
        _ => Err(Errno::ADDRINUSE.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_file_that_is_swapped_in_after_the_bind_keeps_its_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (path, victim) = (at("s"), at("victim"));
        std::fs::write(&victim, "").unwrap();
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Each step may meet what the other thread has just done.
                while !finished.load(Ordering::Relaxed) {
                    let _ = std::fs::hard_link(&victim, at("new"));
                    let _ = std::fs::rename(at("new"), &path);
                    let _ = std::fs::remove_file(&path);
                }
            });
            let access = SocketAccess { user: Some(65534), group: Some(65534), mode: Some(0o666) };
            for _ in 0..20_000 {
                if let Ok((_, file)) = SocketFile::bind(&path, SOCKET_MODE) {
                    let _ = file.set_access(access);
                }
            }
            finished.store(true, Ordering::Relaxed);
        });
        let found = victim.metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (0, 0, 0o644));
    }
}
