//! Folders in which PHP's user makes files, and the files that the lab reads there. The lab runs as root, mostly: it opens nothing there to
//! write to it, and follows no links.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Lets a user, and no other one, make files in a folder of the lab's. The files of the lab stay its own: a server
/// may read it as root.
///
/// # Errors
/// The folder's group cannot be changed.
pub fn open_to_user(path: &Path, user: Option<&str>) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    let Some(user) = user else { return Ok(()) };
    let passwd = fs::read_to_string("/etc/passwd")?;
    let group = passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.first() == Some(&user)).then(|| fields.get(3)?.parse().ok())?
    });
    let Some(group) = group else { return Ok(()) };
    std::os::unix::fs::chown(path, None, Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o1775))
}

/// The content of a regular file in a folder in which PHP's user may have put a link or a pipe in its place.
///
/// # Errors
/// The errors of open(2), and one for another kind of file.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("log"), "line").unwrap();
        symlink("log", at("link")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(read_file(&at("log")).unwrap(), b"line");
        for name in ["link", "pipe", "missing", "."] {
            read_file(&at(name)).unwrap_err();
        }
    }
}
