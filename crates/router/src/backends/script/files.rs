//! Whether a file exists that a path may run.
//!
//! A busy thread looks the same scripts up thousands of times per second. A file that it found is not looked up again in the
//! same turn of the event loop: [`ScriptFiles::forget`] is called before the thread takes any response from PHP, and after
//! each sleep. A client that deletes a file after a response never meets an older lookup. PHP checks the file once more, for
//! requests that waited. A file that was not found is looked up each time.
//!
//! A look-up that may have to wait for its file system fails on an event loop: another thread repeats it.

use crate::file_access::{PathError, Waiting, metadata, metadata_below};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The lookups of one thread below one root directory.
#[derive(Debug)]
pub struct ScriptFiles {
    /// The application's root directory, if it has one of its own.
    rootfs: Option<PathBuf>,
    /// The files that were found in this turn.
    found: RefCell<Vec<Vec<u8>>>,
    waiting: Waiting,
}

/// Why it is not known whether a file exists.
#[derive(Debug, PartialEq, Eq)]
pub enum ScriptFileError {
    /// The router's user may not look for this file.
    Denied(PathBuf),
    /// The file system may have to wait.
    WouldWait,
}

/// The number of files that are kept.
const MOST_FILES: usize = 8;

// === impl ScriptFiles ===

impl ScriptFiles {
    /// Lookups below this root directory, on an event loop.
    pub fn below(rootfs: Option<&Path>) -> ScriptFiles {
        ScriptFiles { rootfs: rootfs.map(Path::to_owned), found: RefCell::default(), waiting: Waiting::Never }
    }

    /// The same lookups, for a thread that may wait.
    pub fn that_may_wait(&self) -> ScriptFiles {
        ScriptFiles { waiting: Waiting::Allowed, ..ScriptFiles::below(self.rootfs.as_deref()) }
    }

    /// Whether a regular file has this path.
    ///
    /// # Errors
    /// When the router's user may not look for it, or when that may have to wait.
    pub fn is_file(&self, path: &[u8]) -> Result<bool, ScriptFileError> {
        if self.found.borrow().iter().any(|found| found == path) {
            return Ok(true);
        }
        let found = match &self.rootfs {
            None => metadata(path, AtFlags::empty(), self.waiting),
            Some(rootfs) => metadata_below(rootfs, path, self.waiting),
        };
        match found {
            Ok(stat) => {
                let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
                let mut found = self.found.borrow_mut();
                if is_file && found.len() < MOST_FILES {
                    found.push(path.to_owned());
                }
                Ok(is_file)
            }
            Err(PathError::Failed(Errno::ACCESS | Errno::PERM)) => {
                Err(ScriptFileError::Denied(OsStr::from_bytes(path).into()))
            }
            Err(PathError::Failed(_)) => Ok(false),
            Err(PathError::WouldWait) => Err(ScriptFileError::WouldWait),
        }
    }

    /// A turn of the event loop begins: files are looked up again.
    pub fn forget(&self) {
        self.found.borrow_mut().clear();
    }
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
