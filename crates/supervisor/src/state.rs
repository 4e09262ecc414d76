//! What outlives howdah: the configuration in the state directory, as NGINX Unit lays it out.
//!
//! `conf.json` is the configuration, `certs/NAME` the certificates. A file is written beside the old one, synced, and
//! put in its place: after a crash there is the old one or the new one, whole. All of it is only for its owner.
//!
//! On a file system that is read-only it is read, and nothing can be changed: not by us, and not by another howdah.

use crate::system_error::words;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const CONFIGURATION: &str = "conf.json";
const LOCK: &str = "lock";

/// A state directory, ours alone as long as this lives.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    /// `None` if nothing can be written.
    lock: Option<File>,
}

// === impl State ===

impl State {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// A sentence: when it cannot be written, or another howdah uses it.
    pub fn open(folder: &Path) -> Result<State, String> {
        let problem = |error: io::Error| {
            format!("the state directory {folder:?} cannot be used: {}; choose another with --state-dir", words(&error))
        };
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(problem)?;
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(FILE_MODE);
        let lock = match options.open(folder.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                tracing::warn!(
                    "the state directory {folder:?} is on a read-only file system: howdah runs with what is stored there, \
                     and refuses changes; choose another with --state-dir to allow them"
                );
                return Ok(State { folder: folder.to_owned(), lock: None });
            }
            lock => lock.map_err(problem)?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(State { folder: folder.to_owned(), lock: Some(lock) }),
            Err(Errno::WOULDBLOCK) => Err(format!(
                "another howdah uses the state directory {folder:?}; stop it, or choose another with --state-dir"
            )),
            Err(error) => Err(problem(error.into())),
        }
    }

    /// Whether nothing can be stored.
    pub fn is_read_only(&self) -> bool {
        self.lock.is_none()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The stored configuration; `None` if there is none.
    ///
    /// # Errors
    /// A sentence, when it cannot be read.
    pub fn configuration(&self) -> Result<Option<String>, String> {
        let path = self.folder.join(CONFIGURATION);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("the stored configuration {path:?} cannot be read: {}", words(&error))),
        }
    }

    /// Stores a configuration.
    ///
    /// # Errors
    /// A sentence; the configuration that was stored before is still there.
    pub fn store_configuration(&self, text: &str) -> Result<(), String> {
        let path = self.folder.join(CONFIGURATION);
        replace(&path, text.as_bytes()).map_err(|error| {
            format!("{path:?} cannot be written: {}; make room, or choose another --state-dir", words(&error))
        })
    }
}

/// Puts a file with this content in the place of the one that there is, if any: whole or not at all.
///
/// # Errors
/// Whatever the file system says. Nothing has changed then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // A hidden name is no name of a certificate.
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    let temporary = folder.join(name);
    let written = (|| {
        // It may be left over from a crash, with another mode.
        let _ = std::fs::remove_file(&temporary);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    match written {
        Ok(()) => File::open(folder)?.sync_all(),
        Err(error) => {
            let _ = std::fs::remove_file(&temporary);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_configuration_is_stored_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(&folder.path().join("a/b")).unwrap();
        assert_eq!(state.configuration(), Ok(None));
        state.store_configuration("{}").unwrap();
        state.store_configuration("{\"listeners\": {}}").unwrap();
        assert_eq!(state.configuration().unwrap().as_deref(), Some("{\"listeners\": {}}"));
        let mode = |name: &str| state.folder().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("."), mode("conf.json")), (0o700, 0o600));
    }

    #[test]
    fn two_supervisors_do_not_share_a_state() {
        let folder = tempfile::tempdir().unwrap();
        let first = State::open(folder.path()).unwrap();
        assert!(State::open(folder.path()).unwrap_err().contains("another howdah uses the state directory"));
        drop(first);
        State::open(folder.path()).unwrap();
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf.json");
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"x").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
