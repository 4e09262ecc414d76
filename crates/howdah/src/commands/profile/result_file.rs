//! A file with a result, in a folder that another user may own: root often profiles in the folder of an application.
//!
//! The file is made under a name that no other user can know, and renamed when it is complete. A link in place of the file
//! is replaced, and not followed; [`trusted_path`] decides about the links above it. A command that is interrupted before it has a
//! result leaves nothing.
//!
//! Fails if the folder cannot be written.

use howdah_lab::result_file;
use howdah_protocol::{descriptor_path, trusted_path};
use howdah_supervisor::system_error::error_text;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A file that can be written.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    /// Its folder, whatever another user puts in its place meanwhile.
    folder: OwnedFd,
    name: OsString,
}

// === impl ResultFile ===

impl ResultFile {
    /// The file with this path. Its folder is tried now: a user does not wait for a result that cannot be written.
    ///
    /// # Errors
    /// A sentence.
    pub fn create(path: &Path) -> Result<ResultFile, String> {
        let (folder, name) = trusted_path::folder(path).map_err(|error| unwritable(path, &error))?;
        let file = ResultFile { path: path.to_owned(), folder, name };
        let tried = tempfile::Builder::new().prefix(".howdah-").tempfile_in(descriptor_path(&file.folder));
        tried.map_err(|error| unwritable(path, &error)).map(|_tried| file)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it, in place of a former one.
    ///
    /// # Errors
    /// A sentence.
    pub fn write(self, content: &[u8]) -> Result<(), String> {
        let written = result_file::replace(&descriptor_path(&self.folder).join(&self.name), content);
        written.map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write {path:?}: {}; choose another file with --output", error_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("victim"), "kept").unwrap();
        symlink(at("victim"), at("a.svg")).unwrap();
        symlink(at("made"), at("b.svg")).unwrap();
        for name in ["a.svg", "b.svg"] {
            ResultFile::create(&at(name)).unwrap().write(b"<svg/>").unwrap();
            assert!(!at(name).is_symlink());
            assert_eq!(std::fs::read(at(name)).unwrap(), b"<svg/>");
        }
        drop(ResultFile::create(&at("c.svg")).unwrap());
        assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "kept");
        assert_eq!((at("made").exists(), folder.path().read_dir().unwrap().count()), (false, 3));
        assert!(ResultFile::create(Path::new("/nowhere/a.svg")).unwrap_err().starts_with("cannot write"));
    }
}
