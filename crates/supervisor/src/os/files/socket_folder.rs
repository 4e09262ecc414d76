//! A folder for the Unix sockets of one application: its user makes the sockets, and only that user and the router's group
//! can reach them. Or we make the sockets, and only the application's user can connect.
//!
//! The folder is removed when the last process of the generation has exited; after a howdah that was killed, by the next one.

use crate::os::files::locked_folder::{self, LockedFolder};
use crate::os::system_error::error_text;
use howdah_protocol::sockets::application_socket::ApplicationSocket;
use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use rustix::fs::{Mode, chmod};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The folder. It is removed on drop, with its files.
#[derive(Debug)]
pub struct SocketFolder {
    folder: LockedFolder,
    /// Whether another user than ours, which is the router's too, owns it.
    is_given: bool,
}

/// The folder in which root makes these folders.
const OF_ROOT: &str = "/run";
/// The connections that wait to be accepted, of each socket.
const BACKLOG: i32 = 16;

// === impl SocketFolder ===

impl SocketFolder {
    /// Makes the folder of a generation, and sockets of ours in it. `ids` are the user and group of the application, to whom it is
    /// given then, and `router_group` is the group of the router; without `ids`, all have our own.
    ///
    /// # Errors
    /// With the path and the reason, or that of `make_sockets`.
    pub fn create<S>(
        generation: u64,
        ids: Option<(u32, u32)>,
        router_group: Option<u32>,
        make_sockets: impl FnOnce(&SocketFolder) -> io::Result<S>,
    ) -> io::Result<(SocketFolder, S)> {
        let folder = LockedFolder::create(&parent(), &generation.to_string())?;
        let folder = SocketFolder { folder, is_given: ids.is_some() };
        // The user may mount a file system over its folder, which would get our look-ups of a path.
        let sockets = make_sockets(&folder)?;
        folder.give_to(ids, router_group).map_err(|error| {
            let (path, reason) = (folder.folder.path(), error_text(&error));
            io::Error::other(format!("cannot make the folder {path:?} for sockets: {reason}"))
        })?;
        Ok((folder, sockets))
    }

    /// Makes a folder in which only we make sockets, and to which only the application's group comes.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn create_for_clients(generation: u64, ids: Option<(u32, u32)>) -> io::Result<SocketFolder> {
        let folder = LockedFolder::create(&parent(), &generation.to_string())?;
        if let Some((_, group)) = ids {
            let ours = rustix::process::geteuid().as_raw();
            folder.give_to(ours, group, 0o710).map_err(|error| {
                let (path, reason) = (folder.path(), error_text(&error));
                io::Error::other(format!("cannot make the folder {path:?} for sockets: {reason}"))
            })?;
        }
        Ok(SocketFolder { folder, is_given: false })
    }

    /// Listens on a socket of [`create_for_clients`](Self::create_for_clients), to which only this user can connect. It
    /// does not block.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn listen(&self, name: &str, client: Option<(u32, u32)>) -> io::Result<UnixListener> {
        let path = self.socket(name);
        let listen = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            refuse_descriptors(&socket);
            socket.bind(&SockAddr::unix(&path)?)?;
            // Before it listens. No other user can put another file in its place.
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            if let Some((user, group)) = client {
                lchown(&path, Some(user), Some(group))?;
            }
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(UnixListener::from(OwnedFd::from(socket)))
        };
        listen().map_err(|error: io::Error| {
            io::Error::other(format!("cannot listen on the socket {path:?}: {}", error_text(&error)))
        })
    }

    /// Removes the folders of howdahs that were killed.
    pub fn remove_abandoned() {
        locked_folder::remove_abandoned(&parent());
    }

    /// Removes a socket, or the file in its place.
    pub fn remove(&self, socket: &Path) {
        if let Some(name) = socket.file_name() {
            self.folder.remove_entry(name);
        }
    }

    fn give_to(&self, ids: Option<(u32, u32)>, router_group: Option<u32>) -> io::Result<()> {
        let Some((user, group)) = ids else { return Ok(()) };
        self.folder.give_to(user, router_group.unwrap_or(group), 0o710)
    }

    /// The path of a socket in it.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets the router connect to a socket, whatever the umask of its program is: only the folder protects it. The path
    /// belongs to the application, so that it may lead anywhere: only a socket of this user is touched, and none that has
    /// another name elsewhere.
    pub fn open_to_router(&self, socket: &Path, user: u32) {
        if !self.is_given {
            return;
        }
        let Ok(socket) = ApplicationSocket::open(socket) else { return };
        if socket.user == user && socket.is_only_name {
            // A failure shows when the router connects.
            let _ = chmod(socket.path(), Mode::from_raw_mode(0o666));
        }
    }
}

/// The folder in which we make these folders.
fn parent() -> PathBuf {
    let of_root = Path::new(OF_ROOT);
    match rustix::process::geteuid().is_root() && of_root.is_dir() {
        true => of_root.to_owned(),
        false => std::env::temp_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_router_reaches_a_socket_and_nothing_else_is_touched() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let is_ours =
            |folder: &SocketFolder| folder.folder.path().metadata().map(|metadata| metadata.mode() & 0o777 == 0o700);
        let (folder, was_ours) = SocketFolder::create(1, Some((0, 0)), Some(65534), is_ours).unwrap();
        assert!(was_ours, "while we make sockets");
        let metadata = folder.folder.path().metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (0, 65534, 0o710));
        let (socket, link, file) = (folder.socket("1"), folder.socket("2"), folder.socket("3"));
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        for path in [&link, &file] {
            folder.open_to_router(path, 0);
            assert_eq!(mode(path), 0o600);
        }
        folder.open_to_router(&socket, 1);
        assert_eq!(mode(&socket), 0o600, "a socket of another user");
        let second_name = folder.socket("4");
        fs::hard_link(&socket, &second_name).unwrap();
        folder.open_to_router(&second_name, 0);
        assert_eq!(mode(&socket), 0o600, "a second name of a socket");
        fs::remove_file(&second_name).unwrap();
        folder.open_to_router(&socket, 0);
        assert_eq!(mode(&socket), 0o666);
    }

    #[test]
    fn only_the_application_connects_to_a_socket_of_ours() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = SocketFolder::create_for_clients(1, Some((65534, 60))).unwrap();
        let listener = folder.listen("1", Some((65534, 60))).unwrap();
        let owner = |path: &Path| path.metadata().map(|path| (path.uid(), path.gid(), path.mode() & 0o777)).unwrap();
        assert_eq!(owner(folder.folder.path()), (0, 60, 0o710));
        assert_eq!(owner(&folder.socket("1")), (65534, 60, 0o600));
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let _client = UnixStream::connect(folder.socket("1")).unwrap();
        assert!(listener.accept().is_ok());
        assert!(folder.listen("1", None).unwrap_err().to_string().contains("1\": "), "the path is in use");
    }
}
