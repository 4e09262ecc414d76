//! The process's standard error, which never blocks its writers.
//!
//! A regular file is written directly, other files by a background thread. The kind of file is checked for each line,
//! because a log may be reopened. A process that knows that the file is in a file system which may hang
//! ([`StandardError::set_may_hang`]) never writes directly.

use crate::{BackgroundWriter, Target};
use rustix::fs::FileType;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The writer to standard error.
#[derive(Debug)]
pub struct StandardError {
    writer: BackgroundWriter,
    may_hang: AtomicBool,
}

/// The writer of this process. The first line for a pipe or terminal starts a thread, so it must not come before
/// privileges are dropped.
pub fn standard_error() -> &'static StandardError {
    static STANDARD_ERROR: OnceLock<StandardError> = OnceLock::new();
    STANDARD_ERROR.get_or_init(|| StandardError::new(BackgroundWriter::to(Target::StandardError, "standard error")))
}

// === impl StandardError ===

impl StandardError {
    fn new(writer: BackgroundWriter) -> StandardError {
        StandardError { writer, may_hang: AtomicBool::new(false) }
    }

    /// Sets whether the file may be in a file system that hangs.
    pub fn set_may_hang(&self, may_hang: bool) {
        self.may_hang.store(may_hang, Ordering::Relaxed);
    }

    /// Writes or queues lines.
    pub fn push(&self, lines: &[u8]) {
        self.writer.write(lines, !self.may_hang.load(Ordering::Relaxed) && is_regular());
    }

    /// Waits until all lines are written, up to the timeout.
    pub fn finish(&self, timeout: Duration) {
        self.writer.finish(timeout);
    }
}

fn is_regular() -> bool {
    let stat = rustix::fs::fstat(rustix::stdio::stderr());
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
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
