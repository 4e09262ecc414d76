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
}

/// The free space is looked at after this number of bytes.
pub const LOOK_BYTES: u64 = 1024 * 1024;
/// This part of a file system is left free, and no more than [`MOST_LEFT_FREE`].
const PART_LEFT_FREE: u64 = 16;
/// In bytes.
const MOST_LEFT_FREE: u64 = 256 * 1024 * 1024;

// === impl DiskSpace ===

impl DiskSpace {
    /// The file system of this file. `None` if it reports no sizes, as some do.
    pub fn of(file: impl AsFd) -> Option<DiskSpace> {
        let system = fstatvfs(file).ok()?;
        let [free, all] = [system.f_bavail, system.f_blocks].map(|blocks| blocks.saturating_mul(system.f_frsize));
        (all != 0).then_some(DiskSpace { free, all })
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
