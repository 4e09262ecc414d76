//! Whether a file exists that a path may run.
//!
//! A busy thread looks the same scripts up thousands of times per second. A file that it found is not looked up again in the
//! same turn of the event loop: [`ScriptFiles::forget`] is called before the thread takes any response from PHP, and after
//! each sleep. A client that deletes a file after a response never meets an older lookup. PHP checks the file once more, for
//! requests that waited. A file that was not found is looked up each time.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The lookups of one thread below one root directory.
#[derive(Debug)]
pub struct ScriptFiles {
    /// The application's root directory, if it has one of its own.
    rootfs: Option<PathBuf>,
    /// The files that were found in this turn.
    found: RefCell<Vec<Vec<u8>>>,
}

/// The number of files that are kept.
const MOST_FILES: usize = 8;

// === impl ScriptFiles ===

impl ScriptFiles {
    /// Lookups below this root directory.
    pub fn below(rootfs: Option<&Path>) -> ScriptFiles {
        ScriptFiles { rootfs: rootfs.map(Path::to_owned), found: RefCell::default() }
    }

    /// Whether a regular file has this path.
    ///
    /// # Errors
    /// The path, if the router's user may not look for it.
    pub fn is_file(&self, path: &[u8]) -> Result<bool, PathBuf> {
        if self.found.borrow().iter().any(|found| found == path) {
            return Ok(true);
        }
        let as_path = Path::new(OsStr::from_bytes(path));
        let found = match &self.rootfs {
            None => std::fs::metadata(as_path).map(|found| found.is_file()),
            Some(rootfs) => is_file_in(rootfs, as_path),
        };
        match found {
            Ok(is_file) => {
                let mut found = self.found.borrow_mut();
                if is_file && found.len() < MOST_FILES {
                    found.push(path.to_owned());
                }
                Ok(is_file)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(as_path.into()),
            Err(_) => Ok(false),
        }
    }

    /// A turn of the event loop begins: files are looked up again.
    pub fn forget(&self) {
        self.found.borrow_mut().clear();
    }
}

/// Symbolic links lead to the same files as for a process with this root directory.
fn is_file_in(rootfs: &Path, path: &Path) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, rootfs, flags, Mode::empty())?;
    let found = rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
    Ok(FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_found_is_looked_up_again_in_the_next_turn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.php");
        let path = file.as_os_str().as_bytes();
        let files = ScriptFiles::below(None);
        assert_eq!(files.is_file(path), Ok(false));
        std::fs::write(&file, "").unwrap();
        assert_eq!(files.is_file(path), Ok(true), "a file that was not found is looked up each time");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(files.is_file(path), Ok(true), "the same turn");
        files.forget();
        assert_eq!(files.is_file(path), Ok(false));
        assert_eq!(files.is_file(folder.path().as_os_str().as_bytes()), Ok(false), "a folder");
    }

    #[test]
    fn few_files_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let files = ScriptFiles::below(None);
        for number in 0..2 * MOST_FILES {
            let file = folder.path().join(format!("{number}.php"));
            std::fs::write(&file, "").unwrap();
            assert_eq!(files.is_file(file.as_os_str().as_bytes()), Ok(true));
        }
        assert_eq!(files.found.borrow().len(), MOST_FILES);
    }
}
