//! Which mounts of the machine are local, read from `/proc/self/mountinfo`.

use std::collections::HashSet;

/// The mounts of a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    /// The numbers of the local mounts.
    local: HashSet<u64>,
    /// Another mount can be reached.
    has_others: bool,
}

/// File systems that answer without another machine and without another process. All others may wait, unknown ones too.
const LOCAL: [&str; 41] = [
    "bcachefs",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fusectl",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jfs",
    "mqueue",
    "nilfs2",
    "nsfs",
    "ntfs3",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "reiserfs",
    "rootfs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "udf",
    "vfat",
    "xfs",
    "zfs",
];
/// Folders of the kernel, which no site is served from. systemd has a mount of type `autofs` there on each machine.
const KERNEL_FOLDERS: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

// === impl MountTable ===

impl MountTable {
    /// Reads the table. A line that is not understood counts as a mount that may wait.
    pub fn parse(mountinfo: &str) -> MountTable {
        let mut table = MountTable::default();
        for line in mountinfo.lines() {
            match (number_of(line), kind_of(line)) {
                (Some(number), Some(kind)) if LOCAL.contains(&kind) => drop(table.local.insert(number)),
                _ => table.has_others |= !is_of_the_kernel(line),
            }
        }
        table
    }

    /// Whether no path at all leads to a mount that may wait.
    pub fn is_all_local(&self) -> bool {
        !self.has_others
    }

    /// Whether this mount never waits. A mount that is not in the table may wait: it is new.
    pub fn is_local(&self, mount: u64) -> bool {
        self.local.contains(&mount)
    }
}

fn number_of(line: &str) -> Option<u64> {
    line.split(' ').next()?.parse().ok()
}

/// The type stands behind a list of optional fields, which ends with a hyphen.
fn kind_of(line: &str) -> Option<&str> {
    line.split_once(" - ")?.1.split(' ').next()
}

fn is_of_the_kernel(line: &str) -> bool {
    let mount_point = line.split(' ').nth(4).unwrap_or_default();
    KERNEL_FOLDERS.iter().any(|folder| mount_point.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n";
    const PROC: &str = "22 27 0:21 / /proc rw - proc proc rw\n";
    const AUTOMOUNT: &str = "40 22 0:30 / /proc/sys/fs/binfmt_misc rw shared:13 - autofs systemd-1 rw,fd=29\n";

    #[test]
    fn local_mounts_never_wait() {
        let table = MountTable::parse(&[ROOT, PROC, AUTOMOUNT].concat());
        assert!(table.is_all_local() && table.is_local(27) && table.is_local(22));
        assert!(!table.is_local(40) && !table.is_local(99));
    }

    #[test]
    fn mounts_of_other_machines_and_processes_may_wait() {
        for line in [
            "50 27 0:40 / /srv/shared rw - nfs4 server:/shared rw,vers=4.2",
            "50 27 0:40 / /mnt/a\\040b rw shared:9 master:2 - cifs //server/share rw",
            "50 27 0:40 / /home/x/mount rw - fuse.sshfs x@y: rw",
            "50 27 0:40 / /home/x/mount rw - fuseblk /dev/sdb1 rw",
            "50 27 0:40 / /net rw - autofs auto.net rw",
            "50 27 0:40 / /sysadmin rw - fuse x rw",
            "50 27 0:40 / /x rw - some-future-fs x rw",
            "not understood",
        ] {
            let table = MountTable::parse(&format!("{ROOT}{line}\n{PROC}"));
            assert!(!table.is_all_local() && !table.is_local(50) && table.is_local(27), "{line}");
        }
    }
}
