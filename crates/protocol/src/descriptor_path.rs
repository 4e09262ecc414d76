//! Another path of an open file, for system calls that take only a path.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// The path of this descriptor in procfs. It leads to the open file, whatever is at the file's own path meanwhile.
pub fn descriptor_path(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
