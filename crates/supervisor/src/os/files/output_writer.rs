//! Writes what the supervisor copies to an application's `stderr`, from a thread: the file may be a named pipe that is not
//! read, or in a file system that hangs.
//!
//! All processes that write to the same file share one thread and its queue, also across generations. Each thread of a
//! process that has died would wait for the file without end, with a megabyte of lines.

use howdah_background_writer::BackgroundWriter;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The writer of a file.
#[derive(Debug)]
pub struct OutputWriter {
    writer: BackgroundWriter,
    /// The device and inode of the file, which stays open.
    file: Option<(u64, u64)>,
}

/// How long the end of the output may wait for its file.
const FINISH_TIMEOUT: Duration = Duration::from_millis(100);

/// The writers in use.
static WRITERS: Mutex<Vec<Weak<OutputWriter>>> = Mutex::new(Vec::new());

// === impl OutputWriter ===

impl OutputWriter {
    /// The writer of this file, which is open for appending, and which messages call `name`.
    pub fn of(file: &Arc<File>, name: &'static str) -> Arc<OutputWriter> {
        let id = file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        // The list is complete at any time.
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|writer| writer.strong_count() > 0);
        let known = writers.iter().filter_map(Weak::upgrade).find(|writer| id.is_some() && writer.file == id);
        known.unwrap_or_else(|| {
            let writer = BackgroundWriter::of_any(file, name);
            let writer = Arc::new(OutputWriter { writer, file: id });
            writers.push(Arc::downgrade(&writer));
            writer
        })
    }

    /// Queues output, or drops it if the queue is full.
    pub fn push(&self, output: &[u8]) {
        self.writer.push(output);
    }
}

impl Drop for OutputWriter {
    fn drop(&mut self) {
        // The supervisor may exit now, and the thread with it.
        self.writer.finish(FINISH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::OpenOptions;

    #[test]
    fn a_file_has_one_writer_however_often_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Arc::new(OpenOptions::new().read(true).append(true).open(folder.path().join(name)).unwrap());
        for name in ["a", "b"] {
            mknodat(CWD, folder.path().join(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        }
        let first = OutputWriter::of(&open("a"), "a test");
        for _ in 0..10 {
            let again = OutputWriter::of(&open("a"), "a test");
            again.push(&[b'x'; 100_000]);
            assert!(Arc::ptr_eq(&first, &again));
        }
        assert!(!Arc::ptr_eq(&first, &OutputWriter::of(&open("b"), "a test")));
    }
}
