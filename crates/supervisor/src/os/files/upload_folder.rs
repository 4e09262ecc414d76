//! A folder for uploaded files of one application: the router writes them, and the application's user reads them.
//!
//! Only the router can make files in it, so that no path in it leads elsewhere. It belongs to the application's group,
//! and so do the files (by the set-group-ID bit). The folder is removed with the generation. A howdah that is killed
//! leaves it behind.

use crate::os::system_error::error_text;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The folder. It is removed on drop, with everything in it.
#[derive(Debug)]
pub struct UploadFolder {
    path: PathBuf,
}

/// How many names are tried: another process may have made a folder with the same name.
const NAMES: u32 = 100;
/// The router writes, and the application's group reads.
const MODE: u32 = 0o2750;

// === impl UploadFolder ===

impl UploadFolder {
    /// Makes the folder among the temporary files. `name` is a part of its name, `application` and `router` are users and
    /// groups; without them, all have our own.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn create(name: &str, application: Option<(u32, u32)>, router: Option<(u32, u32)>) -> io::Result<UploadFolder> {
        let (parent, pid) = (std::env::temp_dir(), std::process::id());
        let mut paths = (0..NAMES).map(|number| parent.join(format!("howdah-uploads-{pid}-{name}-{number}")));
        let made = paths.find_map(|path| match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            result => Some((path, result)),
        });
        let Some((path, result)) = made else {
            return Err(io::Error::other(format!(
                "cannot make a folder for uploads in {parent:?}: all names are used"
            )));
        };
        let folder = UploadFolder { path };
        result.and_then(|()| folder.give_to(application, router)).map_err(|error| {
            let (path, reason) = (&folder.path, error_text(&error));
            io::Error::other(format!("cannot make the folder {path:?} for uploads: {reason}; see TMPDIR"))
        })?;
        Ok(folder)
    }

    fn give_to(&self, application: Option<(u32, u32)>, router: Option<(u32, u32)>) -> io::Result<()> {
        let (Some((_, group)), Some((user, _))) = (application, router) else { return Ok(()) };
        chown(&self.path, Some(user), Some(group))?;
        // After the change of the owner, which clears the bit.
        fs::set_permissions(&self.path, Permissions::from_mode(MODE))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UploadFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_router_writes_and_the_group_of_the_application_reads() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = UploadFolder::create("test-1", Some((1, 60)), Some((65534, 65534))).unwrap();
        let other = UploadFolder::create("test-1", None, None).unwrap();
        assert_ne!(folder.path(), other.path());
        let metadata = folder.path().metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (65534, 60, MODE));
        fs::write(folder.path().join("x"), "").unwrap();
        assert_eq!(folder.path().join("x").metadata().unwrap().gid(), 60);
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
