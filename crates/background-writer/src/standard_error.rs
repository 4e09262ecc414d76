//! The process's standard error, which never blocks its writers.
//!
//! A regular file is written directly, other files by a background thread. The kind of file is checked for each line,
//! because a log may be reopened.

use crate::{BackgroundWriter, Target, write_all};
use rustix::fs::FileType;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// The writer to standard error.
#[derive(Debug)]
pub struct StandardError {
    writer: BackgroundWriter,
}

/// The writer of this process. The first line for a pipe or terminal starts a thread, so it must not come before
/// privileges are dropped.
pub fn standard_error() -> &'static StandardError {
    static STANDARD_ERROR: OnceLock<StandardError> = OnceLock::new();
    STANDARD_ERROR
        .get_or_init(|| StandardError { writer: BackgroundWriter::to(Target::StandardError, "standard error") })
}

// === impl StandardError ===

impl StandardError {
    /// Writes or queues lines.
    pub fn push(&self, lines: &[u8]) {
        let stat = rustix::fs::fstat(rustix::stdio::stderr());
        let is_regular = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if is_regular && self.writer.is_empty() {
            // A full disk is not a failure.
            let _ = write_all(rustix::stdio::stderr(), lines);
        } else {
            self.writer.push(lines);
        }
    }

    /// Waits until all lines are written, up to the timeout.
    pub fn finish(&self, timeout: Duration) {
        self.writer.finish(timeout);
    }
}

impl Write for &StandardError {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
