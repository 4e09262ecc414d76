//! The access log's file. The supervisor opens it, as it may be root, and the router writes to it.

use howdah_config::LogDestination;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MODE: u32 = 0o640;

/// A descriptor to write the access log to.
///
/// # Errors
/// With the place in the configuration, the path and the reason.
pub fn open(log: &LogDestination) -> Result<OwnedFd, String> {
    match log {
        LogDestination::Stdout => io::stdout().as_fd().try_clone_to_owned().map_err(|error| error.to_string()),
        LogDestination::Path(path) => append_to(path).map(OwnedFd::from).map_err(|error| error.to_string()),
    }
    .map_err(|reason| match log {
        LogDestination::Stdout => format!("access_log: standard output cannot be used: {reason}"),
        LogDestination::Path(path) => format!("access_log: {path:?} cannot be opened: {reason}; choose another file"),
    })
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}
