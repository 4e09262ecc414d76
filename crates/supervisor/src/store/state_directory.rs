//! What outlives howdah: the configuration in the state directory, as NGINX Unit lays it out.
//!
//! `conf.json` is the configuration, `certs/NAME` the certificates. A file is written beside the old one, synced, and
//! put in its place: after a crash there is the old one or the new one, whole. All of it is only for its owner. A
//! configuration that does not run is kept as `conf.json.failed`, whatever is stored later.
//!
//! On a file system that is read-only it is read, and nothing can be changed: not by us, and not by another howdah.

use crate::os::system_error::words;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const CONFIGURATION: &str = "conf.json";
/// The last one that did not run.
const FAILED: &str = "conf.json.failed";
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
        // It may be a folder that other things are in, too: its mode is for its owner to change.
        if folder.metadata().is_ok_and(|metadata| metadata.permissions().mode() & !FOLDER_MODE & 0o777 != 0) {
            tracing::warn!("others can look into the state directory {folder:?}; close it with chmod 700");
        }
        tighten(&folder.join(CONFIGURATION), FILE_MODE);
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

    /// Keeps the stored configuration, which does not run, under another name, too. Returns what to say of that.
    pub fn keep_failed(&self) -> String {
        let (path, kept) = (self.folder.join(CONFIGURATION), self.folder.join(FAILED));
        // What is stored next has a file of its own, so that this one stays as it is.
        let _ = std::fs::remove_file(&kept);
        match std::fs::hard_link(&path, &kept).or_else(|_| std::fs::copy(&path, &kept).map(drop)) {
            Ok(()) => format!("it is kept as {kept:?}"),
            Err(error) => format!("{path:?} is there until the first change, as it cannot be kept: {}", words(&error)),
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

/// Takes from others what an earlier program, or a copy, may have given them: keys are in here.
pub fn tighten(path: &Path, mode: u32) {
    let Ok(metadata) = path.metadata() else { return };
    let open = metadata.permissions().mode() & 0o777;
    if open & !mode == 0 {
        return;
    }
    match std::fs::set_permissions(path, Permissions::from_mode(open & mode)) {
        Ok(()) => tracing::warn!("{path:?} was open to others (mode {open:o}); it is not any more"),
        Err(error) => tracing::warn!("{path:?} is open to others (mode {open:o}): {}; close it", words(&error)),
    }
}

/// Puts a file with this content in the place of the one that there is, if any: whole or not at all.
///
/// # Errors
/// Whatever the file system says. Nothing has changed then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_and(path, content, |folder| File::open(folder)?.sync_all())
}

fn replace_and(path: &Path, content: &[u8], sync: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
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
    if let Err(error) = written {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    // It is there, for everybody but who pulls the plug this second.
    if let Err(error) = sync(folder) {
        tracing::warn!("{path:?} is written, but may be the old one after a crash of the machine: {}", words(&error));
    }
    Ok(())
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
    fn what_is_in_place_counts_even_if_the_disk_does_not_promise_to_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf.json");
        replace(&path, b"old").unwrap();
        replace_and(&path, b"new", |_| Err(Errno::IO.into())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_configuration_that_does_not_run_outlives_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        for text in ["first", "second"] {
            state.store_configuration(text).unwrap();
            assert!(state.keep_failed().ends_with("conf.json.failed\""));
            state.store_configuration("{}").unwrap();
            assert_eq!(std::fs::read_to_string(folder.path().join(FAILED)).unwrap(), text);
        }
        std::fs::remove_file(folder.path().join(CONFIGURATION)).unwrap();
        assert!(state.keep_failed().contains("cannot be kept"));
    }

    #[test]
    fn what_others_could_read_is_closed_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONFIGURATION);
        std::fs::write(&file, "{}").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        let _state = State::open(folder.path()).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o400);
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
