//! Control groups (version 2) of applications: created when a prototype starts, removed when the last prototype has
//! exited.
//!
//! Only groups that howdah has created are removed: a group that an operator has created keeps its limits. A group that
//! still has processes cannot be removed, and is left.

use crate::os::system_error::error_text;
use procfs_core::process::MountInfo;
use procfs_core::{FromRead, ProcessCGroups};
use rustix::process::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An application's control group. When the last clone is dropped, the group is removed if we created it.
#[derive(Clone, Debug)]
pub struct Group(Arc<Folder>);

#[derive(Debug)]
struct Folder(PathBuf);

/// The groups that we created, of all applications, and that still exist: a new generation uses those of the old one.
static CREATED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

// === impl Group ===

impl Group {
    /// The group with this folder, which may not exist yet.
    pub fn new(folder: PathBuf) -> Group {
        Group(Arc::new(Folder(folder)))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.0.0
    }

    /// Whether an operator has frozen it, or a group around it.
    pub fn is_frozen(&self) -> bool {
        fs::read_to_string(self.folder().join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
    }

    /// Creates the group if it does not exist, and moves a process into it. The children of the process will be in it
    /// too.
    ///
    /// # Errors
    /// A sentence without the path of the option.
    pub fn admit(&self, pid: Pid) -> Result<(), String> {
        let Folder(folder) = &*self.0;
        let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            fs::create_dir(folder).map_err(|error| {
                format!("cannot create {folder:?}: {}; start howdah as root, or delegate the group", error_text(&error))
            })?;
            CREATED.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
        }
        let members = folder.join("cgroup.procs");
        fs::write(&members, pid.as_raw_pid().to_string()).map_err(|error| {
            format!(
                "cannot move a process into {members:?}: {}; a group with controllers for others cannot have processes of \
                 its own: choose one below it",
                error_text(&error)
            )
        })
    }
}

// === impl Folder ===

impl Drop for Folder {
    fn drop(&mut self) {
        let mut created = CREATED.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in self.0.ancestors() {
            let Some(index) = created.iter().position(|other| other == folder) else { return };
            if fs::remove_dir(folder).is_err() {
                return;
            }
            created.remove(index);
        }
    }
}

/// The folders of this process's group and of all groups around it, from the inside out. The limits of all of them
/// apply.
pub fn own_folders() -> Vec<PathBuf> {
    root().map(|root| folders(&root, &root.join(own_group()))).unwrap_or_default()
}

/// The folders of this group and of all groups around it, from the inside out.
pub fn folders_of(group: &Path) -> Vec<PathBuf> {
    root().map(|root| folders(&root, group)).unwrap_or_default()
}

fn folders(root: &Path, group: &Path) -> Vec<PathBuf> {
    group.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

/// The folder of the root group; `None` if no hierarchy of version 2 is mounted.
pub fn root() -> Option<PathBuf> {
    mount_point(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// The path of this process's group below [`root`].
pub fn own_group() -> PathBuf {
    group_of(&fs::read("/proc/self/cgroup").unwrap_or_default())
}

/// Where version 2 is mounted. A line that cannot be parsed is another mount's.
fn mount_point(mounts: &[u8]) -> Option<PathBuf> {
    // Users may mount file systems at any names.
    let mounts = String::from_utf8_lossy(mounts);
    let mounts = mounts.lines().filter_map(|line| MountInfo::from_line(line).ok());
    mounts.into_iter().find(|mount| mount.fs_type == "cgroup2").map(|mount| mount.mount_point)
}

/// The group of version 2, whose hierarchy has the number 0.
fn group_of(groups: &[u8]) -> PathBuf {
    let groups = ProcessCGroups::from_read(groups).map(|groups| groups.0).unwrap_or_default();
    let own = groups.into_iter().find(|group| group.hierarchy == 0);
    own.map(|group| PathBuf::from(group.pathname.trim_start_matches('/'))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_is_found_beside_version_1() {
        let mounts = b"32 31 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
                      60 27 0:50 / /tmp/\xff rw - fuse x rw,user_id=1000,group_id=1000\n\
                      33 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point(b"32 31 0:28 / /sys rw - sysfs sysfs rw\n"), None);
        assert_eq!(
            group_of(b"4:memory:/x\n0::/system.slice/howdah.service\n"),
            Path::new("system.slice/howdah.service")
        );
        assert_eq!(group_of(b"0::/\n"), Path::new(""));
    }

    #[test]
    fn only_groups_that_we_created_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let operators = folder.path().join("operators");
        fs::create_dir(&operators).unwrap();
        let group = |path: &str| Group::new(operators.join(path));
        let (first, second) = (group("a/b"), group("a/b"));
        let pid = rustix::process::getpid();
        first.admit(pid).unwrap();
        second.admit(pid).unwrap();
        // On a real hierarchy, the kernel's own files do not keep a group from being removed.
        fs::remove_file(operators.join("a/b/cgroup.procs")).unwrap();
        drop(first.clone());
        assert!(operators.join("a/b").exists(), "a clone exists");
        drop(first);
        drop(second);
        assert!(!operators.join("a").exists() && operators.exists());
    }
}
