//! The free space of a file system, of which files for slow clients leave a part.

use rustix::fs::fstatvfs;
use std::os::fd::AsFd;

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct DiskSpace {
    /// The free part.
    pub free: u64,
    /// Its size.
    pub all: u64,
    /// The least that a file takes: its block, and its share of the inodes.
    pub of_a_file: u64,
}

/// The free space is looked at after this number of bytes.
pub const LOOK_BYTES: u64 = 1024 * 1024;
/// This part of a file system is left free, and no more than [`MOST_LEFT_FREE`].
const PART_LEFT_FREE: u64 = 16;
/// The usual block, in bytes: a file with one byte has one.
const BLOCK: u64 = 4096;
/// In bytes.
const MOST_LEFT_FREE: u64 = 256 * 1024 * 1024;

// === impl DiskSpace ===

impl DiskSpace {
    /// The file system of this file. `None` if it reports no sizes, as some do. Its inodes are space, too: the free part is
    /// that of the scarcer of both.
    pub fn of(file: impl AsFd) -> Option<DiskSpace> {
        let system = fstatvfs(file).ok()?;
        let [free, all] = [system.f_bavail, system.f_blocks].map(|blocks| blocks.saturating_mul(system.f_frsize));
        (all != 0).then(|| DiskSpace::with_inodes(free, all, system.f_favail, system.f_files))
    }

    /// Some file systems have no number of inodes: zero.
    fn with_inodes(free: u64, all: u64, free_inodes: u64, inodes: u64) -> DiskSpace {
        let Some(share) = all.checked_div(inodes) else { return DiskSpace { free, all, of_a_file: BLOCK } };
        let free_by_inodes = u128::from(all) * u128::from(free_inodes) / u128::from(inodes);
        DiskSpace {
            free: free.min(u64::try_from(free_by_inodes).unwrap_or(u64::MAX)),
            all,
            of_a_file: share.max(BLOCK),
        }
    }

    /// The part that is left free.
    pub fn left_free(self) -> u64 {
        (self.all / PART_LEFT_FREE).min(MOST_LEFT_FREE)
    }
}

/// Whether a file that grows has reached a size at which the free space is looked at.
pub fn is_time_to_look(before: u64, after: u64) -> bool {
    before / LOOK_BYTES != after / LOOK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_space() {
        const MIB: u64 = 1 << 20;
        // The free bytes, the free inodes and all of 160 MiB, and the expected free bytes and least of a file.
        let table = [
            (40 * MIB, 0, 0, (40 * MIB, BLOCK)),
            (40 * MIB, 9000, 10_240, (40 * MIB, 16 * 1024)),
            (40 * MIB, 640, 10_240, (10 * MIB, 16 * 1024)),
            (40 * MIB, 0, 10_240, (0, 16 * 1024)),
            (40 * MIB, u64::MAX, u64::MAX, (40 * MIB, BLOCK)),
        ];
        for (free, free_inodes, inodes, expected) in table {
            let space = DiskSpace::with_inodes(free, 160 * MIB, free_inodes, inodes);
            assert_eq!((space.free, space.of_a_file), expected, "{free_inodes} of {inodes}");
        }
    }
}
