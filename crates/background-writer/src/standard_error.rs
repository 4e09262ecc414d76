//! The process's standard error, which nobody waits for.
//!
//! A regular file is written at once, anything else in the background: which one it is is asked each time, as a log may
//! be opened anew.

use crate::{BackgroundWriter, Target, write_all};
use rustix::fs::FileType;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// Where lines for standard error go.
#[derive(Debug)]
pub struct StandardError {
    writer: BackgroundWriter,
}

/// That of this process. The first line that has to wait starts a thread, so it must not come before privileges are
/// dropped.
pub fn standard_error() -> &'static StandardError {
    static STANDARD_ERROR: OnceLock<StandardError> = OnceLock::new();
    STANDARD_ERROR
        .get_or_init(|| StandardError { writer: BackgroundWriter::to(Target::StandardError, "standard error") })
}

// === impl StandardError ===

impl StandardError {
    /// Writes lines, or puts them on the queue.
    pub fn push(&self, lines: &[u8]) {
        let stat = rustix::fs::fstat(rustix::stdio::stderr());
        let is_regular = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if is_regular && self.writer.is_empty() {
            // A full disk is no reason to fail.
            let _ = write_all(rustix::stdio::stderr(), lines);
        } else {
            self.writer.push(lines);
        }
    }

    /// Waits until everything is written, but no longer than `patience`.
    pub fn finish(&self, patience: Duration) {
        self.writer.finish(patience);
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
