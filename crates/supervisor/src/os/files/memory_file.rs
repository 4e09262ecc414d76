//! Files in memory, which pass long texts to other processes.

use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

/// A file in memory with this content. Its offset is at its beginning.
///
/// # Errors
/// When there is no memory or no descriptor for it.
pub fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("howdah", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}
