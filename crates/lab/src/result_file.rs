//! Files with results, in a folder that another user may own: root often measures in the folder of an application.
//!
//! A file is made under a name that no other user can know, and renamed when it is complete. A link in its place is
//! replaced, and not followed.

use howdah_protocol::{descriptor_path, trusted_path};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// As for any new file: the umask applies.
const MODE: u32 = 0o666;

/// A folder for several results. It stays the same one, whatever another user puts in its place meanwhile.
#[derive(Debug)]
pub struct ResultFolder {
    path: PathBuf,
    opened: OwnedFd,
}

// === impl ResultFolder ===

impl ResultFolder {
    /// Opens the folder at this path, and makes it first if it does not exist.
    ///
    /// # Errors
    /// It cannot be made, or a link of another user leads there; the message names it.
    pub fn create(path: &Path) -> Result<ResultFolder, String> {
        let opened = std::fs::create_dir_all(path).and_then(|()| trusted_path::open_folder(path));
        let opened = opened.map_err(|error| crate::reason::at(path, &error))?;
        Ok(ResultFolder { path: path.to_owned(), opened })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file with this name, in place of a former one.
    ///
    /// # Errors
    /// It cannot be written; the message names it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), String> {
        let content = content.as_ref();
        let written = match replace(&descriptor_path(&self.opened).join(name), content) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let again = ResultFolder::create(&self.path)?;
                replace(&descriptor_path(&again.opened).join(name), content)
            }
            written => written,
        };
        written.map_err(|error| crate::reason::at(&self.path.join(name), &error))
    }
}

/// Writes a file, in place of a former one.
///
/// # Errors
/// It cannot be written; the message names it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    replace(path, content.as_ref()).map_err(|error| crate::reason::at(path, &error))
}

/// The same, for a caller that describes the error itself.
///
/// # Errors
/// Of the system.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(".howdah-").permissions(Permissions::from_mode(MODE)).tempfile_in(folder)?;
    file.write_all(content)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_place_of_a_result_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (result, other) = (folder.path().join("results.json"), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &result).unwrap();
        write(&result, "{}").unwrap();
        write(&result, "[]").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&result).unwrap(), "[]");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write(Path::new("/no/such/folder/x"), "").unwrap_err().contains("/no/such/folder/x"));
    }

    #[test]
    fn a_folder_that_is_replaced_meanwhile_gets_no_results() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let folder = ResultFolder::create(&at("a/results")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::rename(at("a/results"), at("moved")).unwrap();
        symlink(at("other"), at("a/results")).unwrap();
        folder.write("report.html", "x").unwrap();
        assert_eq!(fs::read_dir(at("other")).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(at("moved/report.html")).unwrap(), "x");
        for removed in [at("moved"), at("a/results")] {
            fs::remove_dir_all(removed).unwrap();
        }
        folder.write("report.html", "x").unwrap();
        assert_eq!(fs::read_to_string(at("a/results/report.html")).unwrap(), "x");
    }
}
