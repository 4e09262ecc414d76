//! A folder for the Unix sockets of one application: its user makes the sockets, and only that user and the router's group
//! can reach them.
//!
//! The folder is removed when the last process of the generation has exited. A howdah that is killed leaves it behind.

use crate::os::system_error::error_text;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, fstat};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The folder. It is removed on drop, with everything in it.
#[derive(Debug)]
pub struct SocketFolder {
    path: PathBuf,
    /// The user that makes the sockets; `None`: our own, which is the router's too.
    owner: Option<u32>,
}

/// The folder in which root makes these folders.
const OF_ROOT: &str = "/run";
/// How many names are tried: another process may have made a folder with the same name.
const NAMES: u32 = 100;

// === impl SocketFolder ===

impl SocketFolder {
    /// Makes the folder. `name` is a part of its name, `ids` the user and group of the application, and `router_group`
    /// the group of the router; without `ids`, all have our own.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn create(name: &str, ids: Option<(u32, u32)>, router_group: Option<u32>) -> io::Result<SocketFolder> {
        let is_root = rustix::process::geteuid().is_root();
        let parent = if is_root && Path::new(OF_ROOT).is_dir() { PathBuf::from(OF_ROOT) } else { std::env::temp_dir() };
        let pid = std::process::id();
        let mut paths = (0..NAMES).map(|number| parent.join(format!("howdah-{pid}-{name}-{number}")));
        let made = paths.find_map(|path| match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            result => Some((path, result)),
        });
        let Some((path, result)) = made else {
            return Err(io::Error::other(format!(
                "cannot make a folder for sockets in {parent:?}: all names are used"
            )));
        };
        let folder = SocketFolder { path, owner: ids.map(|(user, _)| user) };
        let given = result.and_then(|()| folder.give_to(ids, router_group));
        given.map_err(|error| {
            io::Error::other(format!("cannot make the folder {:?} for sockets: {}", folder.path, error_text(&error)))
        })?;
        Ok(folder)
    }

    fn give_to(&self, ids: Option<(u32, u32)>, router_group: Option<u32>) -> io::Result<()> {
        let Some((user, group)) = ids else { return Ok(()) };
        chown(&self.path, Some(user), Some(router_group.unwrap_or(group)))?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o710))
    }

    /// The path of a socket in it.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Lets the router connect to a socket, whatever the umask of its program is: only the folder protects it. The path
    /// belongs to the application, so that it may lead anywhere: only a socket of its user is touched.
    pub fn open_to_router(&self, socket: &Path) {
        let Some(owner) = self.owner else { return };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(CWD, socket, flags, Mode::empty()) else { return };
        let is_own = fstat(&file).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::Socket && [owner, 0].contains(&stat.st_uid)
        });
        if is_own {
            // A failure shows when the router connects.
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let _ = chmodat(CWD, path, Mode::from_raw_mode(0o666), AtFlags::empty());
        }
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_router_reaches_a_socket_and_nothing_else_is_touched() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = SocketFolder::create("test-1", Some((0, 0)), Some(65534)).unwrap();
        let other = SocketFolder::create("test-1", Some((0, 0)), None).unwrap();
        assert_ne!(folder.path, other.path);
        let metadata = folder.path.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (0, 65534, 0o710));
        let (socket, link, file) = (folder.socket("1"), folder.socket("2"), folder.socket("3"));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        for path in [&link, &file] {
            folder.open_to_router(path);
            assert_eq!(mode(path), 0o600);
        }
        folder.open_to_router(&socket);
        assert_eq!(mode(&socket), 0o666);
        let path = folder.path.clone();
        drop(folder);
        assert!(!path.exists());
    }
}
