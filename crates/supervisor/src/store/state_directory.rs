//! The state directory: the configuration and the certificates, laid out as NGINX Unit does.
//!
//! `conf.json` is the configuration, `certs/NAME` are the certificates. A file is written beside the old one, synced,
//! and renamed: after a crash, the old or the new file exists, complete. Only the owner may read the files. A
//! configuration that does not run is also kept as `conf.json.failed`, whatever is stored later.
//!
//! On a read-only file system the configuration is read, and cannot be changed: not by this howdah, and not by another
//! one.

use crate::os::system_error::error_text;
use howdah_protocol::trusted_path;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const CONFIGURATION: &str = "conf.json";
/// The last configuration that did not run.
const FAILED: &str = "conf.json.failed";
const LOCK: &str = "lock";

/// A state directory that is locked for this process.
#[derive(Debug)]
pub struct StateDirectory {
    folder: PathBuf,
    /// `None` on a read-only file system.
    lock: Option<File>,
}

// === impl StateDirectory ===

impl StateDirectory {
    /// Opens the directory. Creates it if it does not exist.
    ///
    /// # Errors
    /// A sentence, if the directory cannot be written, or if another howdah uses it.
    pub fn open(folder: &Path) -> Result<StateDirectory, String> {
        let problem = |error: io::Error| {
            format!(
                "cannot use the state directory {folder:?}: {}; choose another with --state-dir",
                error_text(&error)
            )
        };
        make_folder(folder, create_folder).map_err(problem)?;
        // Not blocking: a named pipe must not make the start wait.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let lock = match trusted_path::open(&folder.join(LOCK), flags, Mode::from_raw_mode(FILE_MODE)) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                tracing::warn!(
                    "the state directory {folder:?} is on a read-only file system: howdah runs with what is stored there, \
                     and refuses changes; choose another with --state-dir to allow them"
                );
                return Ok(StateDirectory { folder: folder.to_owned(), lock: None });
            }
            lock => lock.map_err(problem)?,
        };
        // The folder may hold other files too, so only its owner should change its mode.
        let open = folder.metadata().map_or(0, |metadata| metadata.permissions().mode() & !FOLDER_MODE);
        if open & 0o022 != 0 {
            tracing::warn!(
                "other users can write to the state directory {folder:?}, and so replace the configuration; run \
                 `chmod 700` on it"
            );
        } else if open & 0o777 != 0 {
            tracing::warn!("other users can read the state directory {folder:?}; run `chmod 700` on it");
        }
        remove_access_of_others(&folder.join(CONFIGURATION), FILE_MODE);
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateDirectory { folder: folder.to_owned(), lock: Some(lock) }),
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

    /// The stored configuration; `None` if nothing is stored.
    ///
    /// # Errors
    /// A sentence, when it cannot be read.
    pub fn configuration(&self) -> Result<Option<String>, String> {
        let path = self.folder.join(CONFIGURATION);
        match trusted_path::read(&path).and_then(io::read_to_string) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read the stored configuration {path:?}: {}", error_text(&error))),
        }
    }

    /// Keeps a copy of the stored configuration, which does not run. Returns a phrase for the log.
    pub fn keep_failed(&self) -> String {
        let (path, kept) = (self.folder.join(CONFIGURATION), self.folder.join(FAILED));
        // The next configuration is a new file, so a hard link keeps this one.
        let _ = std::fs::remove_file(&kept);
        match std::fs::hard_link(&path, &kept).or_else(|_| std::fs::copy(&path, &kept).map(drop)) {
            Ok(()) => format!("it is kept as {kept:?}"),
            Err(error) => format!("{path:?} exists until the first change, and cannot be kept: {}", error_text(&error)),
        }
    }

    /// Stores a configuration.
    ///
    /// # Errors
    /// A sentence; the configuration that was stored before is still there.
    pub fn store_configuration(&self, text: &str) -> Result<(), String> {
        let path = self.folder.join(CONFIGURATION);
        replace_file(&path, text.as_bytes()).map_err(|error| {
            format!("cannot write {path:?}: {}; make room, or choose another --state-dir", error_text(&error))
        })
    }
}

/// Makes a folder, if it does not exist, and checks its owner then: a stranger could make it after an earlier check.
fn make_folder(folder: &Path, create: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    if !folder.is_dir() {
        create(folder)?;
    }
    check_owner(folder)
}

fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// Refuses a folder, or a link in its place, of another user in a folder like `/tmp`, where any user may have made it: the
/// configuration of a stranger runs the stranger's programs as our user, and an account of a stranger obtains certificates for
/// our domains. No other user can replace a folder of ours there.
fn check_owner(folder: &Path) -> io::Result<()> {
    let parent = folder.parent().and_then(|parent| parent.metadata().ok());
    if parent.is_none_or(|parent| parent.permissions().mode() & 0o002 == 0) {
        return Ok(());
    }
    let owner = trusted_path::owner_of(folder)?;
    match [0, rustix::process::geteuid().as_raw()].contains(&owner) {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "it belongs to user id {owner}, who may have made it for you to find; with HOME, the default is another one"
        ))),
    }
}

/// Makes the folder in which a howdah without a state directory stores certificates.
///
/// # Errors
/// A sentence, if it may belong to a stranger. Another folder that cannot be made is reported when there is something to
/// store.
pub fn make_certificate_folder(folder: &Path) -> Result<(), String> {
    let _ = create_folder(folder);
    check_owner(folder).map_err(|error| {
        let reason = error_text(&error);
        format!("cannot use the folder of certificates {folder:?}: {reason}; choose another with --certificate-dir")
    })
}

/// Removes access for other users that an earlier program, or a copy, may have given them: the files contain keys.
pub fn remove_access_of_others(path: &Path, mode: u32) {
    // The link that is checked is the one that is followed: see `trusted_path`.
    let Ok(file) = trusted_path::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) else { return };
    let Ok(metadata) = file.metadata() else { return };
    let open = metadata.permissions().mode() & 0o777;
    if open & !mode == 0 {
        return;
    }
    match file.set_permissions(Permissions::from_mode(open & mode)) {
        Ok(()) => tracing::warn!("{path:?} was open to other users (mode {open:o}); changed its mode"),
        Err(error) => tracing::warn!(
            "{path:?} is open to other users (mode {open:o}), and its mode cannot be changed: {}",
            error_text(&error)
        ),
    }
}

/// Replaces a file, or creates it, with this content: completely or not at all.
///
/// # Errors
/// If the file cannot be written. The old file is unchanged then.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_file_and(path, content, |folder| File::open(folder)?.sync_all())
}

fn replace_file_and(path: &Path, content: &[u8], sync: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // The name of a certificate is never hidden.
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(".new");
    let temporary = folder.join(name);
    let written = (|| {
        // A crash may have left it, with another mode.
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
    // The file is replaced. Only a crash of the machine right now could bring the old one back.
    if let Err(error) = sync(folder) {
        tracing::warn!(
            "{path:?} is written, but a crash of the machine may bring the old one back: {}",
            error_text(&error)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn a_configuration_is_stored_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&folder.path().join("a/b")).unwrap();
        assert_eq!(state.configuration(), Ok(None));
        state.store_configuration("{}").unwrap();
        state.store_configuration("{\"listeners\": {}}").unwrap();
        assert_eq!(state.configuration().unwrap().as_deref(), Some("{\"listeners\": {}}"));
        let mode = |name: &str| state.folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("."), mode("conf.json")), (0o700, 0o600));
    }

    #[test]
    fn two_supervisors_do_not_share_a_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(folder.path()).unwrap();
        assert!(StateDirectory::open(folder.path()).unwrap_err().contains("another howdah uses the state directory"));
        drop(first);
        StateDirectory::open(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_that_another_user_has_prepared_leads_nowhere() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (state, victim) = (folder.path().join("state"), folder.path().join("victim"));
        std::fs::create_dir(&state).unwrap();
        let prepare = |name: &str| {
            symlink(&victim, state.join(name)).unwrap();
            lchown(state.join(name), Some(65534), None).unwrap();
        };
        prepare(LOCK);
        let error = StateDirectory::open(&state).unwrap_err();
        assert!(error.contains("it is a symbolic link of user id 65534"), "{error}");
        assert!(!victim.exists(), "root made a file of the attacker's choice");
        std::fs::remove_file(state.join(LOCK)).unwrap();
        mknodat(CWD, state.join(LOCK), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(StateDirectory::open(&state).is_err(), "it does not wait for a reader");
        std::fs::remove_file(state.join(LOCK)).unwrap();
        std::fs::write(&victim, "").unwrap();
        std::fs::set_permissions(&victim, Permissions::from_mode(0o644)).unwrap();
        prepare(CONFIGURATION);
        StateDirectory::open(&state).unwrap();
        assert_eq!(
            victim.metadata().unwrap().permissions().mode() & 0o777,
            0o644,
            "the mode of another file was changed"
        );
    }

    #[test]
    fn a_folder_that_another_user_makes_at_the_last_moment_is_not_used() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let shared = tempfile::tempdir().unwrap();
        let state = shared.path().join("howdah");
        let make = |owner| {
            make_folder(&state, |folder| {
                // The other user is faster.
                std::fs::create_dir(folder)?;
                lchown(folder, Some(owner), None)?;
                create_folder(folder)
            })
        };
        make(65534).unwrap();
        std::fs::set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
        std::fs::remove_dir(&state).unwrap();
        let error = make(65534).unwrap_err().to_string();
        assert!(error.starts_with("it belongs to user id 65534"), "{error}");
        assert!(StateDirectory::open(&state).unwrap_err().contains(&error));
        std::fs::remove_dir(&state).unwrap();
        make(0).unwrap();
    }

    #[test]
    fn a_failed_sync_of_the_folder_does_not_undo_the_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf.json");
        replace_file(&path, b"old").unwrap();
        replace_file_and(&path, b"new", |_| Err(Errno::IO.into())).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_failed_configuration_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(folder.path()).unwrap();
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
    fn a_named_pipe_in_the_place_of_a_configuration_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(folder.path()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.path().join(CONFIGURATION),
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        let error = state.configuration().unwrap_err();
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }

    #[test]
    fn access_for_other_users_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONFIGURATION);
        std::fs::write(&file, "{}").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        let _state = StateDirectory::open(folder.path()).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o400);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf.json");
        std::fs::create_dir(&path).unwrap();
        assert!(replace_file(&path, b"x").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
