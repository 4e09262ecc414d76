use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where a path leads, without links. The kernel follows them in one system call: realpath(3) has one for each name, and the owner of
/// a folder can make links of very many names.
///
/// # Errors
/// The errors of open(2) with `O_PATH`.
pub fn canonical(path: &Path) -> Result<PathBuf, Errno> {
    let target = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = readlink(format!("/proc/self/fd/{}", target.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_is_found_without_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        symlink("file", real.join("first")).unwrap();
        symlink(real.join("./first"), real.join("second")).unwrap();
        symlink("missing", real.join("broken")).unwrap();

        assert_eq!(canonical(&real.join("second")).unwrap(), real.join("file"));
        assert_eq!(canonical(&real.join("broken")).unwrap_err(), Errno::NOENT);
    }
}
