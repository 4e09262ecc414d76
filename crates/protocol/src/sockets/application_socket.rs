//! The file of a Unix socket in a folder of ours that an application's user owns.
//!
//! The user can replace the socket by a link into a file system that hangs, or mount one over it: connect(2) by path would
//! wait there without end. Therefore the file is opened first, which neither follows a link nor leaves the file system of our
//! folders ([`own_mount`]), and the connection is made through its descriptor. Neither waits for another process.

use crate::{descriptor_path, own_mount};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A socket that was found. Another file in its place has no effect on it.
#[derive(Debug)]
pub struct ApplicationSocket {
    file: OwnedFd,
    /// The user that owns the file.
    pub user: u32,
    /// Whether it is the only name of the file.
    pub is_only_name: bool,
}

// === impl ApplicationSocket ===

impl ApplicationSocket {
    /// Finds the socket at a path of ours. The application owns the last folder at most.
    ///
    /// # Errors
    /// Of the system, or with the kind of the file, if it is not a socket.
    pub fn open(path: &Path) -> io::Result<ApplicationSocket> {
        let file = open(path).map_err(|error| match error {
            Errno::XDEV => io::Error::other("a file system is mounted in its place"),
            error => error.into(),
        })?;
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Ok(ApplicationSocket { file, user: stat.st_uid, is_only_name: stat.st_nlink == 1 }),
            FileType::Symlink => Err(io::Error::other("it is a symbolic link, not a socket")),
            _ => Err(io::Error::other("it is not a socket")),
        }
    }

    /// Another path of the file, for connect(2) and chmod(2), as long as this value lives.
    pub fn path(&self) -> PathBuf {
        descriptor_path(&self.file)
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let ours = path.parent().and_then(Path::parent).ok_or(Errno::NOENT)?;
    let below = path.strip_prefix(ours).map_err(|_| Errno::NOENT)?;
    own_mount::open(ours, below, OFlags::PATH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn only_a_socket_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(at("socket")).unwrap();
        symlink(at("socket"), at("link")).unwrap();
        symlink("/nowhere", at("broken")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let found = ApplicationSocket::open(&at("socket")).unwrap();
        assert_eq!((found.user, found.is_only_name), (at("socket").metadata().unwrap().uid(), true));
        // Another file is there now.
        std::fs::rename(at("link"), at("socket")).unwrap();
        let _client = UnixStream::connect(found.path()).unwrap();
        listener.accept().unwrap();
        for (name, reason) in [
            ("socket", "it is a symbolic link, not a socket"),
            ("broken", "it is a symbolic link, not a socket"),
            ("file", "it is not a socket"),
        ] {
            assert_eq!(ApplicationSocket::open(&at(name)).unwrap_err().to_string(), reason, "{name}");
        }
        assert_eq!(ApplicationSocket::open(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn no_other_file_system_is_entered() {
        let shown = ApplicationSocket::open(Path::new("/proc/self")).unwrap_err().to_string();
        assert_eq!(shown, "a file system is mounted in its place");
    }
}
