//! A folder that lasts as long as this process needs it, and is locked for that time.
//!
//! A howdah that is killed leaves its folders. The kernel removes their locks, so that the next howdah recognises and removes
//! them, whatever process has the old process id now.
//!
//! Another user may own the folder, and put anything into it. Only the entries of the folder itself are removed, and a
//! limited number of them: a tree of any depth must not stop the supervisor, nor a file system that its owner has mounted over
//! it. A folder that stays is a warning.

use crate::os::system_error::error_text;
use howdah_protocol::own_mount;
use rustix::fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, Uid, fchmod, fchown, flock, fstat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder. It is removed on drop, with its files.
#[derive(Debug)]
pub struct LockedFolder {
    path: PathBuf,
    /// Holds the lock.
    descriptor: OwnedFd,
}

/// The beginning of the names of all these folders.
const PREFIX: &str = "howdah-";
/// How many names are tried: another howdah may take a folder for one that was left.
const NAMES: u32 = 100;
/// How many entries are removed.
const MAX_ENTRIES: usize = 10_000;

// === impl LockedFolder ===

impl LockedFolder {
    /// Makes a folder that only we can enter. `name` is a part of its name, and so is a random number: other users may
    /// make folders in `parent`, too, and must not take all names before us.
    ///
    /// # Errors
    /// With the path and the reason.
    pub fn create(parent: &Path, name: &str) -> io::Result<LockedFolder> {
        let pid = std::process::id();
        for _ in 0..NAMES {
            let number = RandomState::new().build_hasher().finish() as u32;
            let path = parent.join(format!("{PREFIX}{pid}-{name}-{number}"));
            match make(&path) {
                Ok(Some(descriptor)) => return Ok(LockedFolder { path, descriptor }),
                Ok(None) => {}
                Err(error) => {
                    let reason = error_text(&error);
                    return Err(io::Error::other(format!("cannot make the folder {path:?}: {reason}")));
                }
            }
        }
        Err(io::Error::other(format!("cannot make a folder in {parent:?}: all names are used")))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the folder to this user and group, with this mode. The user may replace the folder as soon as it owns it: no
    /// path is looked up.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn give_to(&self, user: u32, group: u32, mode: u32) -> io::Result<()> {
        fchown(&self.descriptor, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
        // After the change of the owner, which clears the set-group-ID bit.
        fchmod(&self.descriptor, Mode::from_raw_mode(mode))?;
        Ok(())
    }

    /// Removes an entry. No path is looked up: the user who owns the folder may have mounted a file system over it.
    pub fn remove_entry(&self, name: &OsStr) {
        let _ = unlinkat(&self.descriptor, name, AtFlags::empty());
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        remove(&self.path, &self.descriptor);
    }
}

/// Removes the folders of killed howdahs. In a parent where other users can make folders, only our own ones.
pub fn remove_abandoned(parent: &Path) {
    let ours = rustix::process::geteuid().as_raw();
    let is_private = parent.metadata().is_ok_and(|parent| parent.uid() == ours && parent.mode() & 0o022 == 0);
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_named = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_numbered);
        if !is_named {
            continue;
        }
        let path = entry.path();
        let Ok(descriptor) = open(&path) else { continue };
        let is_trusted = is_private || fstat(&descriptor).is_ok_and(|stat| stat.st_uid == ours);
        if is_trusted && flock(&descriptor, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!("removing the folder {path:?} of a howdah that was killed");
            remove(&path, &descriptor);
        }
    }
}

/// Whether the rest of a name is as `812-3-0`.
fn is_numbered(rest: &str) -> bool {
    rest.split('-').count() == 3 && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// `None` if the name is used, or another howdah removes the folder before it is locked.
fn make(path: &Path) -> io::Result<Option<OwnedFd>> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        result => result?,
    }
    let descriptor = match open(path) {
        Err(Errno::NOENT) => return Ok(None),
        result => result?,
    };
    match flock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        result => result?,
    }
    Ok((fstat(&descriptor)?.st_nlink > 0).then_some(descriptor))
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
    own_mount::open(parent, Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY)
}

fn remove(path: &Path, folder: &OwnedFd) {
    let entries = Dir::read_from(folder).into_iter().flatten().flatten();
    let names = entries.filter(|entry| ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()));
    for entry in names.take(MAX_ENTRIES) {
        let _ = unlinkat(folder, entry.file_name(), AtFlags::empty());
    }
    if let Err(error) = fs::remove_dir(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        let reason = error_text(&error);
        tracing::warn!("cannot remove the folder {path:?}: {reason}; remove it when no howdah needs it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_is_removed_with_its_files_and_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = LockedFolder::create(parent.path(), "1").unwrap();
        let other = LockedFolder::create(parent.path(), "1").unwrap();
        assert_ne!(folder.path(), other.path());
        let kept = parent.path().join("kept");
        fs::write(&kept, "").unwrap();
        symlink(&kept, other.path().join("link")).unwrap();
        fs::write(other.path().join("file"), "").unwrap();
        let path = other.path().to_owned();
        drop(other);
        assert!(!path.exists() && kept.exists() && folder.path().exists());
    }

    #[test]
    fn another_user_cannot_take_all_names() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..200 {
            fs::create_dir(parent.path().join(format!("{PREFIX}{}-7-{number}", std::process::id()))).unwrap();
        }
        assert!(LockedFolder::create(parent.path(), "7").is_ok());
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let folder = LockedFolder::create(parent.path(), "1").unwrap();
        let (moved, victim) = (parent.path().join("moved"), parent.path().join("victim"));
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "").unwrap();
        let before = victim.metadata().unwrap();
        fs::rename(folder.path(), &moved).unwrap();
        symlink(&victim, folder.path()).unwrap();
        folder.give_to(65534, 65534, 0o2750).unwrap();
        let (after, given) = (victim.metadata().unwrap(), moved.metadata().unwrap());
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
        assert_eq!((given.uid(), given.mode() & 0o7777), (65534, 0o2750));
        drop(folder);
        assert!(victim.join("file").exists());
    }

    #[test]
    fn a_tree_in_the_folder_is_left_with_a_warning() {
        let parent = tempfile::tempdir().unwrap();
        let folder = LockedFolder::create(parent.path(), "1").unwrap();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        drop(folder);
        assert!(deep.exists());
    }

    #[test]
    fn only_folders_without_a_lock_are_abandoned() {
        let parent = tempfile::tempdir().unwrap();
        let living = LockedFolder::create(parent.path(), "1").unwrap();
        let [dead, other, target, link] = ["howdah-99999999-1-0", "howdah-serve", "target", "howdah-99999999-2-0"]
            .map(|name| parent.path().join(name));
        for folder in [&dead, &other, &target] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("1.sock"), "").unwrap();
        }
        symlink(&target, &link).unwrap();
        remove_abandoned(parent.path());
        assert!(living.path().exists() && other.exists() && !dead.exists());
        assert!(target.join("1.sock").exists() && link.is_symlink());
    }
}
