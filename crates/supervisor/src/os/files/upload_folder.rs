//! A folder for uploaded files of one application: the router writes them, and the application's user reads them.
//!
//! Only the router can make files in it, so that no path in it leads elsewhere. It belongs to the application's group,
//! and so do the files (by the set-group-ID bit). The folder is removed with the generation, as a [`LockedFolder`]: the
//! router may be the application's user. A howdah that is killed leaves it behind.

use crate::os::files::locked_folder::LockedFolder;
use crate::os::system_error::error_text;
use std::io;
use std::path::Path;

/// The folder. It is removed on drop, with its files.
#[derive(Debug)]
pub struct UploadFolder {
    folder: LockedFolder,
}

/// The router writes, and the application's group reads.
const MODE: u32 = 0o2750;

// === impl UploadFolder ===

impl UploadFolder {
    /// Makes the folder among the temporary files, for this generation. `application` and `router` are users and groups;
    /// without them, all have our own.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn create(
        generation: u64,
        application: Option<(u32, u32)>,
        router: Option<(u32, u32)>,
    ) -> io::Result<UploadFolder> {
        let advise = |error: io::Error| io::Error::other(format!("{error}; it is for uploads: see TMPDIR"));
        let folder = LockedFolder::create(&std::env::temp_dir(), &generation.to_string()).map_err(advise)?;
        if let (Some((_, group)), Some((user, _))) = (application, router) {
            folder.give_to(user, group, MODE).map_err(|error| {
                let (path, reason) = (folder.path(), error_text(&error));
                io::Error::other(format!("cannot make the folder {path:?} for uploads: {reason}; see TMPDIR"))
            })?;
        }
        Ok(UploadFolder { folder })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_router_writes_and_the_group_of_the_application_reads() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = UploadFolder::create(1, Some((1, 60)), Some((65534, 65534))).unwrap();
        let other = UploadFolder::create(1, None, None).unwrap();
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
