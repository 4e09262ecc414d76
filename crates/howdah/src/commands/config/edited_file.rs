//! The file that an editor changes, in a private folder where no other user can replace it.
//!
//! `sudo` and `su` may leave the TMPDIR of another user to root. Therefore all folders of its path must belong to root or to
//! this user, and no other user may rename what is in them. An editor may replace the file by another one: it is opened by
//! its name each time, in the folder that was opened at the beginning.
//!
//! Fails with a sentence.

use howdah_protocol::trusted_path;
use howdah_supervisor::system_error::error_text;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;

/// A file for an editor. It is removed with its folder when it is dropped.
pub(super) struct EditedFile {
    place: TempDir,
    folder: OwnedFd,
}

const NAME: &str = "config.json";

// === impl EditedFile ===

impl EditedFile {
    /// A file with this text, in the folder for temporary files.
    pub(super) fn create(text: &[u8]) -> Result<EditedFile, String> {
        EditedFile::create_in(&std::env::temp_dir(), text)
    }

    fn create_in(parent: &Path, text: &[u8]) -> Result<EditedFile, String> {
        let parent = trusted(parent).map_err(|reason| {
            format!("cannot create a file for the editor: {reason}; set TMPDIR to a folder that other users cannot replace, such as /tmp")
        })?;
        let problem = |error: io::Error| {
            format!("cannot create a file for the editor: {}; free some space, or set TMPDIR", error_text(&error))
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix("howdah-").permissions(Permissions::from_mode(0o700));
        let place = builder.tempdir_in(parent).map_err(problem)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, place.path(), flags, Mode::empty()).map_err(|error| problem(error.into()))?;
        let file = EditedFile { place, folder };
        file.write(text).map_err(problem)?;
        Ok(file)
    }

    /// The path for the editor.
    pub(super) fn path(&self) -> PathBuf {
        self.place.path().join(NAME)
    }

    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.open(OFlags::RDONLY)?.read_to_end(&mut text)?;
        Ok(text)
    }

    pub(super) fn write(&self, text: &[u8]) -> io::Result<()> {
        let mut file = self.open(OFlags::WRONLY | OFlags::CREATE)?;
        file.set_len(0)?;
        file.write_all(text)
    }

    /// Leaves the file where it is.
    pub(super) fn keep(self) -> PathBuf {
        self.place.keep().join(NAME)
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.folder, NAME, flags, Mode::from_raw_mode(0o600)).map_err(|error| match error {
            Errno::LOOP => io::Error::other("it is a symbolic link, which is not followed"),
            error => error.into(),
        })?;
        let stat = fstat(&file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let owner = trusted_path::owner_of_opened(&file)?;
        if owner != geteuid().as_raw() {
            return Err(io::Error::other(format!("it belongs to user id {owner}")));
        }
        Ok(File::from(file))
    }
}

/// The path of this folder without links, if no other user can put another folder in its place.
fn trusted(folder: &Path) -> Result<PathBuf, String> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let path = folder.canonicalize().map_err(|error| format!("{folder:?}: {}", error_text(&error)))?;
    let ours = geteuid().as_raw();
    let mut above = PathBuf::from("/");
    let mut opened = None;
    for component in path.components() {
        if component != Component::RootDir {
            above.push(component);
        }
        let problem = |error: Errno| format!("{above:?}: {}", error_text(&error.into()));
        let next = match &opened {
            None => openat(CWD, &above, FOLDER, Mode::empty()),
            Some(opened) => openat(opened, component.as_os_str(), FOLDER, Mode::empty()),
        };
        let next = next.map_err(problem)?;
        let stat = fstat(&next).map_err(problem)?;
        let owner =
            trusted_path::owner_of_opened(&next).map_err(|error| format!("{above:?}: {}", error_text(&error)))?;
        if ![0, ours].contains(&owner) {
            return Err(format!("the folder {above:?} belongs to user id {owner}"));
        }
        if stat.st_mode & WRITABLE_BY_OTHERS != 0 && stat.st_mode & STICKY == 0 {
            return Err(format!("other users may write to the folder {above:?}"));
        }
        opened = Some(next);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    #[test]
    fn a_folder_that_another_user_can_replace_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("above/folder")).unwrap();
        symlink("above/folder", at("link")).unwrap();
        let create = || EditedFile::create_in(&at("link"), b"text").map(|file| file.path());
        let set = |mode| fs::set_permissions(at("above"), Permissions::from_mode(mode)).unwrap();
        let above = at("above").canonicalize().unwrap();
        for (mode, is_trusted) in [(0o755, true), (0o700, true), (0o1777, true), (0o775, false), (0o757, false)] {
            set(mode);
            match create() {
                Ok(path) => assert!(is_trusted && path.starts_with(above.join("folder")) && !path.exists()),
                Err(error) => {
                    assert!(
                        !is_trusted && error.contains(&format!("write to the folder {above:?}; set TMPDIR")),
                        "{error}"
                    );
                }
            }
        }
        set(0o755);
        if geteuid().is_root() {
            lchown(&above, Some(65534), None).unwrap();
            let error = create().unwrap_err();
            assert!(error.contains(&format!("the folder {above:?} belongs to user id 65534; set TMPDIR")), "{error}");
        }
        assert!(EditedFile::create_in(&at("missing"), b"").is_err_and(|error| error.contains("set TMPDIR")));
        assert_eq!(fs::read_dir(above.join("folder")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_an_editor_has_put_in_its_place_is_read() {
        let place = tempfile::tempdir().unwrap();
        let file = EditedFile::create_in(place.path(), b"text").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (file.read().unwrap(), mode(&file.path()), mode(file.place.path())),
            (b"text".to_vec(), 0o600, 0o700)
        );
        let other = file.place.path().join("other");
        fs::write(&other, "a longer text").unwrap();
        fs::rename(&other, file.path()).unwrap();
        assert_eq!(file.read().unwrap(), b"a longer text");
        file.write(b"short").unwrap();
        fs::rename(file.path(), &other).unwrap();
        symlink("other", file.path()).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("symbolic link"));
        file.write(b"x").unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"short");
        fs::remove_file(file.path()).unwrap();
        fs::rename(&other, file.path()).unwrap();
        if geteuid().is_root() {
            lchown(file.path(), Some(65534), None).unwrap();
            assert_eq!(file.read().unwrap_err().to_string(), "it belongs to user id 65534");
        }
        let kept = file.keep();
        assert_eq!(fs::read(kept).unwrap(), b"short");
    }
}
