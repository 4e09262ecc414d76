//! The private folders of the running `howdah serve` commands: each has a control socket and the slow logs.
//!
//! A folder is named for the served folder and the supervisor's process id, so that any number of them run side by side:
//! `/run/howdah/serve/shop-5b1c2f90.4711`. A folder that a killed howdah left is removed at the next start.
//!
//! If a folder cannot be created, or another user could write to it, the error is one sentence.

use crate::paths::state::StatePaths;
use howdah_protocol::sockets::refused_descriptors::is_listening;
use howdah_protocol::trusted_path;
use howdah_supervisor::system_error::error_text;
use rustix::process::geteuid;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The folders of all `howdah serve` commands of the current user.
pub struct ServeFolders {
    base: PathBuf,
}

const FOLDER: &str = "serve";
const SOCKET: &str = "control.sock";
/// Of the served folder's name. The address of a Unix socket has at most 107 bytes.
const MAX_NAME_LENGTH: usize = 20;

// === impl ServeFolders ===

impl ServeFolders {
    /// In the folder of the default control socket.
    pub fn of_this_user() -> ServeFolders {
        ServeFolders { base: StatePaths::of_this_user().default_control_folder().join(FOLDER) }
    }

    /// Creates the folder of this process, which serves the folder `served`.
    ///
    /// # Errors
    /// The folder cannot be created, or is not private.
    pub fn create(&self, served: &Path) -> Result<PathBuf, String> {
        let folder = self.base.join(format!("{}{}", prefix(served), std::process::id()));
        let problem = |error| format!("cannot create the folder {}: {}", folder.display(), error_text(&error));
        let create = |folder: &Path| DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(problem);
        create(&self.base)?;
        self.check_private()?;
        self.remove_stale();
        // A process with the same id may have left it in a container whose /run is kept.
        let _ = std::fs::remove_dir_all(&folder);
        create(&folder)?;
        Ok(folder)
    }

    /// Another user who could write to the folders could have files of this user removed, or answer in our place.
    fn check_private(&self) -> Result<(), String> {
        match self.base.ancestors().take(2).find(|path| !is_private(path)) {
            Some(path) => Err(format!("other users may write to the folder {}", path.display())),
            None => Ok(()),
        }
    }

    /// The address of the control API in such a folder.
    pub fn control_address(folder: &Path) -> String {
        format!("unix:{}", folder.join(SOCKET).display())
    }

    /// The addresses of the control APIs that run: for this folder, or for any folder.
    pub fn running(&self, served: Option<&Path>) -> Vec<String> {
        let prefix = served.map(prefix).unwrap_or_default();
        let folders = self.folders().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, folder)| folder);
        let mut running: Vec<_> = folders.filter(|folder| answers(folder)).collect();
        running.sort();
        running.iter().map(|folder| ServeFolders::control_address(folder)).collect()
    }

    fn folders(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let is_private = self.check_private().is_ok();
        let entries = is_private.then(|| std::fs::read_dir(&self.base)).into_iter().flatten().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
    }

    /// Removes the folders whose process has died. One that has just started may not answer yet.
    fn remove_stale(&self) {
        for (name, folder) in self.folders() {
            let is_running = name.rsplit_once('.').is_some_and(|(_, pid)| Path::new("/proc").join(pid).exists());
            // In another container, the process has another id.
            if !is_running && !answers(&folder) {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }
}

/// The absolute path. Symbolic links are not resolved: a deploy may change their targets, and their owners are checked when the path is opened.
/// A `..` behind a link stays, and others are resolved.
///
/// # Errors
/// The current folder does not exist.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    let whole = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut resolved = PathBuf::new();
    for component in whole.components() {
        let is_link = || resolved.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let ends_with_up = resolved.ends_with("..");
        if component == Component::ParentDir && !ends_with_up && !is_link() {
            resolved.pop();
        } else {
            resolved.push(component);
        }
    }
    Ok(resolved)
}

/// The beginning of the names of all folders that serve this folder.
fn prefix(served: &Path) -> String {
    let name = served.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME_LENGTH).map(safe).collect();
    format!("{name}-{:08x}.", hash(served.as_os_str().as_encoded_bytes()))
}

/// FNV-1a: other versions of howdah must find the folder, too.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn answers(folder: &Path) -> bool {
    is_listening(&folder.join(SOCKET))
}

fn is_private(folder: &Path) -> bool {
    let has_mode = |metadata: std::fs::Metadata| metadata.is_dir() && metadata.mode() & 0o022 == 0;
    folder.symlink_metadata().is_ok_and(has_mode)
        && trusted_path::owner_of(folder).is_ok_and(|owner| owner == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_way_up_is_resolved_unless_it_is_behind_a_link() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path();
        std::fs::create_dir_all(base.join("real/inner")).unwrap();
        symlink("real/inner", base.join("link")).unwrap();
        for (path, expected) in [
            ("real/../link/x", "link/x"),
            ("real/inner/../../link", "link"),
            ("./missing/../link", "link"),
            ("link/../y", "link/../y"),
            ("link/../../y/../z", "link/../../z"),
        ] {
            assert_eq!(absolute(&base.join(path)), Ok(base.join(expected)), "{path}");
        }
        assert_eq!(absolute(Path::new("/../..")), Ok("/".into()));
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("../x")), Ok(here.parent().unwrap().join("x")));
    }

    fn folders() -> (tempfile::TempDir, ServeFolders) {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("howdah/serve");
        (place, ServeFolders { base })
    }

    #[test]
    fn each_served_folder_has_its_own_name() {
        let names = ["/srv/shop", "/srv/other/shop", "/", "/srv/a very long name of a folder", "/srv/ü"];
        let prefixes: std::collections::BTreeSet<_> = names.iter().map(|name| prefix(Path::new(name))).collect();
        assert_eq!(prefixes.len(), names.len());
        assert!(prefixes.iter().all(|prefix| prefix.len() <= MAX_NAME_LENGTH + 10 && !prefix.contains('/')));
        assert!(prefix(Path::new("/srv/shop")).starts_with("shop-"));
    }

    #[test]
    fn a_running_serve_is_found_by_its_folder() {
        let (_place, folders) = folders();
        let (shop, blog) = (Path::new("/srv/shop"), Path::new("/srv/blog"));
        let folder = folders.create(shop).unwrap();
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        assert!(folders.running(None).is_empty(), "no socket yet");
        let _listener = UnixListener::bind(folder.join(SOCKET)).unwrap();
        let address = ServeFolders::control_address(&folder);
        assert_eq!(folders.running(Some(shop)), std::slice::from_ref(&address));
        assert_eq!(folders.running(None), [address]);
        assert!(folders.running(Some(blog)).is_empty());
    }

    #[test]
    fn only_the_folders_of_dead_processes_are_removed() {
        let (_place, folders) = folders();
        let kept = folders.create(Path::new("/srv/shop")).unwrap();
        // Larger than any process id.
        let stale = folders.base.join("blog-00000000.99999999");
        let elsewhere = folders.base.join("blog-00000000.99999998");
        for folder in [&stale, &elsewhere] {
            std::fs::create_dir(folder).unwrap();
        }
        drop(UnixListener::bind(stale.join(SOCKET)).unwrap());
        let _listener = UnixListener::bind(elsewhere.join(SOCKET)).unwrap();
        folders.remove_stale();
        assert!(kept.exists() && elsewhere.exists() && !stale.exists());
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_rejected() {
        let (place, folders) = folders();
        std::fs::create_dir_all(&folders.base).unwrap();
        std::fs::set_permissions(&folders.base, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(
            folders.create(Path::new("/srv/shop")).unwrap_err().starts_with("other users may write to the folder ")
        );
        let behind_a_link = ServeFolders { base: place.path().join("link") };
        std::fs::create_dir(place.path().join("target")).unwrap();
        symlink(place.path().join("target"), &behind_a_link.base).unwrap();
        std::fs::create_dir(place.path().join("target/documents")).unwrap();
        assert!(behind_a_link.create(Path::new("/srv/shop")).is_err());
        assert!(place.path().join("target/documents").exists());
        assert_eq!(behind_a_link.folders().count(), 0);
    }
}
