//! An application's own log in the router: the file of its `stderr`, for the lines that its scripts cause.
//!
//! A line never blocks an event loop: a regular file of a local file system is written directly, any other file by a
//! thread of its own. A line that cannot be written is lost, as those of PHP in the same file.

use howdah_background_writer::BackgroundWriter;
use howdah_blocking_work::mounts::never_waits;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// The log of an application, for all threads.
#[derive(Debug)]
pub struct ApplicationLog {
    file: Arc<File>,
    is_regular: bool,
    writer: BackgroundWriter,
}

// === impl ApplicationLog ===

impl ApplicationLog {
    /// The log in this file, which is open for appending.
    pub fn new(file: File) -> ApplicationLog {
        let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let file = Arc::new(file);
        let writer = BackgroundWriter::of_any(&file, "an application's stderr");
        ApplicationLog { file, is_regular, writer }
    }
}

impl Write for &ApplicationLog {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.writer.write(lines, self.is_regular && never_waits(&self.file));
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
