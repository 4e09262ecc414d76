//! The owner of a file that counts. The program of a FUSE file system chooses the owners of its files, and `user_allow_other` in
//! `/etc/fuse.conf` permits each user to mount one over a folder of the user for all others: there, all belongs to this user.
//!
//! Where root has mounted it, as with gluster or mergerfs, the owners are those of the files.

use rustix::fs::{Dev, FsWord, Stat, fstatfs, major, minor};
use std::io;
use std::os::fd::AsFd;

/// `FUSE_SUPER_MAGIC` of linux/magic.h, also of virtiofs.
const FUSE_SUPER_MAGIC: FsWord = 0x6573_5546;
const MOUNTS: &str = "/proc/self/mountinfo";

/// The owners of all files of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// The owners that it reports.
    Reported,
    /// This user and this group, who have mounted it.
    Mounter(u32, u32),
}

// === impl Owners ===

impl Owners {
    /// The owners in the file system of this open file.
    ///
    /// # Errors
    /// Of the system, or for a FUSE file system whose user is unknown.
    pub(super) fn of_file_system(file: impl AsFd, device: Dev) -> io::Result<Owners> {
        if fstatfs(file)?.f_type != FUSE_SUPER_MAGIC {
            return Ok(Owners::Reported);
        }
        let mountinfo = std::fs::read(MOUNTS)?;
        Owners::of_fuse(&String::from_utf8_lossy(&mountinfo), device)
            .ok_or_else(|| io::Error::other(format!("{MOUNTS} does not name the user of its FUSE file system")))
    }

    /// The owners in the FUSE file system with this device. Each mount of it has the same options.
    fn of_fuse(mountinfo: &str, device: Dev) -> Option<Owners> {
        let device = format!("{}:{}", major(device), minor(device));
        let line = mountinfo.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
        // The type, the source and the options of the file system stand behind a list of optional fields. Spaces in names are escaped.
        let mut fields = line.split_once(" - ")?.1.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        match kind {
            // Only root mounts it; its options name no user.
            "virtiofs" => return Some(Owners::Reported),
            _ if kind.starts_with("fuse") => {}
            _ => return None,
        }
        match (number(options, "user_id=")?, number(options, "group_id=")?) {
            (0, _) => Some(Owners::Reported),
            (user, group) => Some(Owners::Mounter(user, group)),
        }
    }

    /// The user and the group that count as those of a file there.
    pub(super) fn of(self, file: &Stat) -> (u32, u32) {
        match self {
            Owners::Reported => (file.st_uid, file.st_gid),
            Owners::Mounter(user, group) => (user, group),
        }
    }
}

/// The number of the only option with this name.
fn number(options: &str, name: &str) -> Option<u32> {
    let mut values = options.split(',').filter_map(|option| option.strip_prefix(name));
    let value = values.next()?.parse().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    #[test]
    fn all_in_a_fuse_file_system_belongs_to_the_user_who_mounted_it() {
        let options = "rw,user_id=1000,group_id=100,allow_other";
        for (line, expected) in [
            (format!("60 27 0:50 / /srv/u rw,nosuid - fuse forge {options}"), Some(Owners::Mounter(1000, 100))),
            (
                format!("60 27 0:50 / /a\\040-\\040b rw shared:9 master:2 - fuse.x a:/b {options}"),
                Some(Owners::Mounter(1000, 100)),
            ),
            (
                "60 27 0:50 / /mnt rw - fuseblk /dev/sda1 rw,user_id=0,group_id=0,blksize=4096".to_owned(),
                Some(Owners::Reported),
            ),
            ("60 27 0:50 / /mnt rw - virtiofs tag rw".to_owned(), Some(Owners::Reported)),
            ("60 27 0:50 / /mnt rw - fuse x rw".to_owned(), None),
            ("60 27 0:50 / /mnt rw - fuse x rw,user_id=0".to_owned(), None),
            (format!("60 27 0:50 / /mnt rw - fuse x rw,user_id=0,{options}"), None),
            (format!("60 27 0:50 / /mnt rw - tmpfs x {options}"), None),
            (format!("60 27 0:51 / /mnt rw - fuse x {options}"), None),
            ("60 27 0:50".to_owned(), None),
            (String::new(), None),
        ] {
            let mountinfo = format!("27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n{line}\n");
            assert_eq!(Owners::of_fuse(&mountinfo, makedev(0, 50)), expected, "{line}");
        }
    }
}
