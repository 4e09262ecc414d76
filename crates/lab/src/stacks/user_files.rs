//! Folders in which PHP's user makes files, and the files that the lab reads there. The lab runs as root, mostly: it opens nothing there to
//! write to it, and follows no links.

use super::account::account;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fchown, openat};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How much of a file is read: that of a user may have any length.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Lets a user, and no other one, make files in a folder of the lab's. The files of the lab stay its own: a server
/// may read it as root.
///
/// # Errors
/// The folder's group cannot be changed.
pub fn open_to_user(path: &Path, user: Option<&str>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty())?;
    fchmod(&folder, Mode::from_raw_mode(0o755))?;
    let Some(user) = user else { return Ok(()) };
    let Some((_, group)) = account(user)? else { return Ok(()) };
    fchown(&folder, None, Some(group))?;
    Ok(fchmod(&folder, Mode::from_raw_mode(0o1775))?)
}

/// Makes an empty file that only this user, and root, can write to and read; without a user, only that of the lab.
///
/// # Errors
/// The file exists already, cannot be made, or its owner cannot be changed.
pub fn make_file_for_user(path: &Path, user: Option<&str>) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    // The umask may have taken some of it.
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let Some(user) = user else { return Ok(()) };
    let (owner, group) = account(user)?.ok_or_else(|| io::Error::other(format!("there is no user {user:?}")))?;
    Ok(fchown(&file, Some(owner), Some(group))?)
}

/// The content, or the end of it, of a regular file in a folder in which PHP's user may have put a link or a pipe in its place.
///
/// # Errors
/// The errors of open(2), and one for another kind of file.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(MAX_BYTES)))?;
    let mut content = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut content)?;
    Ok(content)
}

/// The last lines of a log in such a folder, or of a log that PHP's user can write to; none if it cannot be read.
pub fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let text = read_file(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// A path beside such a folder, for a file of the lab: the folder's name comes first.
pub fn beside(folder: &Path, name: &str) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push("-");
    path.push(name);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("log"), "line").unwrap();
        symlink("log", at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(read_file(&at("log")).unwrap(), b"line");
        File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_file(&at("large")).unwrap().len() as u64, MAX_BYTES);
        for name in ["link", "pipe", "missing", "."] {
            read_file(&at(name)).unwrap_err();
        }
    }

    #[test]
    fn a_file_is_for_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        for (name, user) in [("of-lab", None), ("of-user", is_root.then_some("daemon"))] {
            let path = folder.path().join(name);
            make_file_for_user(&path, user).unwrap();
            let (metadata, expected) = (fs::metadata(&path).unwrap(), user.and_then(|user| account(user).unwrap()));
            let owner = expected.map_or(rustix::process::geteuid(), |(owner, _)| owner);
            assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, owner.as_raw()), "{name}");
            make_file_for_user(&path, user).unwrap_err();
        }
        make_file_for_user(&folder.path().join("of-a-stranger"), Some("no such user")).unwrap_err();
    }

    #[test]
    fn a_link_is_not_opened_to_a_user() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("victim")).unwrap();
        symlink("victim", at("link")).unwrap();
        open_to_user(&at("link"), Some("www-data")).unwrap_err();
        open_to_user(&at("victim"), None).unwrap();
    }
}
