//! Control groups (version 2) of applications: made when a prototype starts, removed when the last one has ended.
//!
//! Only groups that we made are removed: one that an operator has made keeps its limits. What cannot be removed, as
//! somebody is in it, is left.

use crate::os::system_error::words;
use howdah_config::{Cgroup, CgroupBase};
use rustix::process::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An application's control group. With the last clone it is removed, if we made it.
#[derive(Clone, Debug)]
pub struct Group(Arc<Folder>);

#[derive(Debug)]
struct Folder(PathBuf);

/// Groups of all applications that we made and that still are there: a new generation takes over those of the old one.
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

// === impl Group ===

impl Group {
    /// The group that the configuration names.
    ///
    /// # Errors
    /// A sentence without the place in the configuration.
    pub fn find(wanted: &Cgroup) -> Result<Group, String> {
        let root = root().ok_or(
            "no hierarchy of control groups, version 2, is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup) \
             or remove the option",
        )?;
        let base = match wanted.base {
            CgroupBase::Root => PathBuf::new(),
            CgroupBase::Own => own_group(),
        };
        Ok(Group(Arc::new(Folder(root.join(base).join(&wanted.path)))))
    }

    /// Its folder, whether it is there yet or not.
    pub fn folder(&self) -> &Path {
        &self.0.0
    }

    /// Whether somebody has frozen it, or a group around it.
    pub fn is_frozen(&self) -> bool {
        fs::read_to_string(self.folder().join("cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
    }

    /// Makes the group, if there is none, and puts a process into it, with what it will fork.
    ///
    /// # Errors
    /// A sentence without the place in the configuration.
    pub fn admit(&self, pid: Pid) -> Result<(), String> {
        let Folder(folder) = &*self.0;
        let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            fs::create_dir(folder).map_err(|error| {
                format!("{folder:?} cannot be made: {}; start howdah as root, or delegate the group", words(&error))
            })?;
            MADE.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
        }
        let members = folder.join("cgroup.procs");
        fs::write(&members, pid.as_raw_pid().to_string()).map_err(|error| {
            format!(
                "{members:?} does not take a process: {}; a group with controllers for others cannot have processes of \
                 its own: choose one below it",
                words(&error)
            )
        })
    }
}

// === impl Folder ===

impl Drop for Folder {
    fn drop(&mut self) {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in self.0.ancestors() {
            let Some(place) = made.iter().position(|other| other == folder) else { return };
            if fs::remove_dir(folder).is_err() {
                return;
            }
            made.remove(place);
        }
    }
}

/// The folders of this process's group and of those around it, whose limits all count, from the inside out.
pub fn own_folders() -> Vec<PathBuf> {
    root().map(|root| folders(&root, &root.join(own_group()))).unwrap_or_default()
}

/// The folders of this group and of those around it, from the inside out.
pub fn folders_of(group: &Path) -> Vec<PathBuf> {
    root().map(|root| folders(&root, group)).unwrap_or_default()
}

fn folders(root: &Path, group: &Path) -> Vec<PathBuf> {
    group.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

fn root() -> Option<PathBuf> {
    mount_point(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn own_group() -> PathBuf {
    group_of(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// `36 35 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let of_version_2 = |line: &&str| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup2 "));
    let line = mounts.lines().find(of_version_2)?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// `0::/system.slice/howdah.service`
fn group_of(groups: &str) -> PathBuf {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    Path::new(own).strip_prefix("/").unwrap_or(Path::new("")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_among_the_first() {
        let mounts = "32 31 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
                      33 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("32 31 0:28 / /sys rw - sysfs sysfs rw\n"), None);
        assert_eq!(
            group_of("4:memory:/x\n0::/system.slice/howdah.service\n"),
            Path::new("system.slice/howdah.service")
        );
        assert_eq!(group_of("0::/\n"), Path::new(""));
    }

    #[test]
    fn what_we_made_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let operators = folder.path().join("operators");
        fs::create_dir(&operators).unwrap();
        let group = |path: &str| Group(Arc::new(Folder(operators.join(path))));
        let (first, second) = (group("a/b"), group("a/b"));
        let pid = rustix::process::getpid();
        first.admit(pid).unwrap();
        second.admit(pid).unwrap();
        // A file of the kernel's own does not keep a group from being removed.
        fs::remove_file(operators.join("a/b/cgroup.procs")).unwrap();
        drop(first.clone());
        assert!(operators.join("a/b").exists(), "a clone of its plan is alive");
        drop(first);
        drop(second);
        assert!(!operators.join("a").exists() && operators.exists());
    }
}
