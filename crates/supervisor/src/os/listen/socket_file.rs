//! The file of a listener's Unix socket. The path may be in a folder of another user, and in a file system that hangs.
//!
//! The folder is opened once, as [`trusted_path`] has it. All work on the file goes by its descriptor: a user who owns a folder of
//! the path cannot lead us to the socket of another user. Where no other user can replace a folder, the socket is bound to the path
//! itself, which tools show; otherwise to that of the descriptor.

use super::stream_socket::stream_socket;
use crate::os::files::hanging::{GivenUp, TIMEOUT, clean_up, within_if_it_may_hang};
use howdah_protocol::{descriptor_path, trusted_path};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
pub(super) struct SocketFile {
    path: PathBuf,
    place: Arc<Place>,
}

/// The device and the inode of a file.
pub(super) type FileId = (u64, u64);

#[derive(Debug)]
struct Place {
    folder: OwnedFd,
    name: OsString,
    id: FileId,
    /// The group with which it was created.
    group: u32,
}

// === impl SocketFile ===

impl SocketFile {
    /// A socket that is bound to this path. Its file has this mode. The files of `own` listeners stay.
    ///
    /// # Errors
    /// Of the system, or when the file system does not answer, or for a link of another user.
    pub(super) fn bind(path: &Path, mode: u32, own: Vec<FileId>) -> io::Result<(OwnedFd, SocketFile)> {
        let owned = path.to_owned();
        within_if_it_may_hang(path, TIMEOUT, move |given_up| bind(owned, mode, &own, given_up))
    }

    /// Its device and inode.
    pub(super) fn id(&self) -> FileId {
        self.place.id
    }

    /// Sets owner, group and mode of our own file, and of no other that is there now.
    ///
    /// # Errors
    /// As above.
    pub(super) fn set_access(&self, access: SocketAccess) -> io::Result<()> {
        let place = Arc::clone(&self.place);
        within_if_it_may_hang(&self.path, TIMEOUT, move |_| place.set_access(access))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let place = Arc::clone(&self.place);
        // The next start removes one that stays.
        clean_up(&self.path, move || drop(place.remove()));
    }
}

// === impl Place ===

impl Place {
    fn set_access(&self, access: SocketAccess) -> io::Result<()> {
        let (file, stat) = find(&self.folder, &self.name)?;
        if id_of(&stat) != self.id {
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
            rustix::fs::chmod(descriptor_path(&file), Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        let found = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if id_of(&found) == self.id {
            unlinkat(&self.folder, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

fn bind(path: PathBuf, mode: u32, own: &[FileId], given_up: &GivenUp) -> io::Result<(OwnedFd, SocketFile)> {
    let trusted_path::Place { folder, name, is_fixed } = trusted_path::place(&path)?;
    remove_stale(&folder, &name, is_fixed.then_some(&path), own, given_up)?;
    let fd = stream_socket(AddressFamily::UNIX)?;
    // The kernel gives the file this mode, less the mask of the process, which belongs to other threads, too. Where it does not, the
    // usual mask keeps others out until the mode is set.
    let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode));
    given_up.check()?;
    let address = match is_fixed {
        true => SocketAddrUnix::new(&path)?,
        false => SocketAddrUnix::new(descriptor_path(&folder).join(&name))?,
    };
    rustix::net::bind(&fd, &address)?;
    let found = own_socket_file(&folder, &name, own)?;
    let place = Arc::new(Place { folder, name, id: id_of(&found), group: found.st_gid });
    let file = SocketFile { path, place: Arc::clone(&place) };
    place.set_access(SocketAccess { mode: Some(mode), ..SocketAccess::default() })?;
    Ok((fd, file))
}

/// The state of the file of a socket that we have bound just now. A user who may write to the folder may have put another
/// file there since: one of root's, as a hard link, whose owner and mode we would set.
fn own_socket_file(folder: &OwnedFd, name: &OsString, own: &[FileId]) -> io::Result<Stat> {
    let (_, found) = find(folder, name)?;
    let is_ours = is_socket(&found)
        && found.st_nlink == 1
        && found.st_uid == rustix::process::geteuid().as_raw()
        && !own.contains(&id_of(&found));
    if is_ours { Ok(found) } else { Err(replaced()) }
}

fn replaced() -> io::Error {
    io::Error::other("another program has replaced its file")
}

/// Removes the file of a socket that has no listener any more. `fixed`: its path, if no other user can change it.
fn remove_stale(
    folder: &OwnedFd,
    name: &OsString,
    fixed: Option<&PathBuf>,
    own: &[FileId],
    given_up: &GivenUp,
) -> io::Result<()> {
    let Ok((file, found)) = find(folder, name) else {
        return Ok(());
    };
    if !is_socket(&found) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // Our own socket may not listen yet.
    if own.contains(&id_of(&found)) {
        return Err(Errno::ADDRINUSE.into());
    }
    let address = SocketAddrUnix::new(fixed.map_or_else(|| descriptor_path(&file), PathBuf::clone))?;
    match rustix::net::connect(stream_socket(AddressFamily::UNIX)?, &address) {
        Err(Errno::CONNREFUSED) => {
            // The socket may be that of a later attempt, which does not listen yet.
            given_up.check()?;
            Ok(unlinkat(folder, name, AtFlags::empty())?)
        }
        _ => Err(Errno::ADDRINUSE.into()),
    }
}

/// Opens the file itself, without access.
fn find(folder: &OwnedFd, name: &OsString) -> io::Result<(OwnedFd, Stat)> {
    let file = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    Ok((file, stat))
}

fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags};
    use std::os::unix::fs::{MetadataExt, lchown, symlink};
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
                if let Ok((_, file)) = SocketFile::bind(&path, SOCKET_MODE, Vec::new()) {
                    let _ = file.set_access(access);
                }
            }
            finished.store(true, Ordering::Relaxed);
        });
        let found = victim.metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (0, 0, 0o644));
    }

    #[test]
    fn a_folder_that_is_swapped_meanwhile_leads_to_no_socket_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["user/run", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let theirs = std::os::unix::net::UnixListener::bind(at("other/s")).unwrap();
        rustix::fs::chmod(at("other/s"), Mode::from_raw_mode(0o640)).unwrap();
        symlink(at("other"), at("user/link")).unwrap();
        for name in ["user", "user/run", "user/link"] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        let access = SocketAccess { user: Some(65534), group: Some(65534), mode: Some(0o666) };
        let (_, file) = SocketFile::bind(&at("user/run/s"), SOCKET_MODE, Vec::new()).unwrap();
        std::fs::rename(at("user/run"), at("user/moved")).unwrap();
        std::fs::rename(at("user/link"), at("user/run")).unwrap();
        file.set_access(access).unwrap();
        assert_eq!(at("user/moved/s").metadata().unwrap().uid(), 65534);
        drop(file);
        assert!(!at("user/moved/s").exists());
        let refused = SocketFile::bind(&at("user/run/s"), SOCKET_MODE, Vec::new()).unwrap_err().to_string();
        assert!(refused.starts_with("a folder of its path is a symbolic link of user id 65534"), "{refused}");

        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(Ordering::Relaxed) {
                    let (run, moved) = (at("user/run"), at("user/moved"));
                    rustix::fs::renameat_with(CWD, &run, CWD, &moved, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..5_000 {
                if let Ok((_, file)) = SocketFile::bind(&at("user/run/s"), SOCKET_MODE, Vec::new()) {
                    let _ = file.set_access(access);
                }
            }
            finished.store(true, Ordering::Relaxed);
        });
        let found = at("other/s").metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (0, 0, 0o640));
        let _client = std::os::unix::net::UnixStream::connect(at("other/s")).unwrap();
        theirs.accept().unwrap();
    }
}
