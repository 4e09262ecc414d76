//! Writes what the supervisor copies to an application's `stderr`, from a thread: the file may be a named pipe that is not
//! read, or in a file system that hangs.
//!
//! All processes that write to the same file share one thread and its queue, also across generations. Each thread of a
//! process that has died would wait for the file without end, with a megabyte of lines. An application whose former files
//! are not read gets no further writer: its user could make a new pipe for each generation.

use howdah_background_writer::{BackgroundWriter, WriterThread};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The writer of a file.
#[derive(Debug)]
pub struct OutputWriter {
    writer: BackgroundWriter,
}

/// How long the end of the output may wait for its file.
const FINISH_TIMEOUT: Duration = Duration::from_millis(100);

/// A writer, or the thread that it has left behind.
#[derive(Debug)]
struct KnownWriter {
    application: String,
    /// The device and inode of its file.
    file: Option<(u64, u64)>,
    writer: Weak<OutputWriter>,
    thread: WriterThread,
}

/// How many threads of an application may wait for files to which no process of it writes any more.
const MAX_LEFT_BEHIND: usize = 4;

/// The writers in use, and the threads of former ones.
static WRITERS: Mutex<Vec<KnownWriter>> = Mutex::new(Vec::new());

// === impl OutputWriter ===

impl OutputWriter {
    /// The writer of this file of an application, which is open for appending, and which messages call `name`. `None` if too
    /// many former files of the application are not read.
    pub fn of(file: &Arc<File>, name: &'static str, application: &str) -> Option<Arc<OutputWriter>> {
        let id = file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        // The list is complete at any time.
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|known| known.writer.strong_count() > 0 || known.thread.is_alive());
        if let Some(known) = writers.iter_mut().find(|known| id.is_some() && known.file == id) {
            let in_use = known.writer.upgrade();
            let again = || known.thread.writer().map(|writer| Arc::new(OutputWriter { writer }));
            if let Some(writer) = in_use.or_else(again) {
                known.writer = Arc::downgrade(&writer);
                application.clone_into(&mut known.application);
                return Some(writer);
            }
        }
        let left_behind = |known: &&KnownWriter| known.application == application && known.writer.strong_count() == 0;
        if writers.iter().filter(left_behind).count() >= MAX_LEFT_BEHIND {
            return None;
        }
        let writer = BackgroundWriter::of_any(file, name);
        let thread = writer.thread();
        let writer = Arc::new(OutputWriter { writer });
        let application = application.to_owned();
        writers.push(KnownWriter { application, file: id, writer: Arc::downgrade(&writer), thread });
        Some(writer)
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
    use std::io::Read;
    use std::time::Instant;

    #[test]
    fn a_file_has_one_writer_however_often_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Arc::new(OpenOptions::new().read(true).append(true).open(folder.path().join(name)).unwrap());
        for name in ["a", "b"] {
            mknodat(CWD, folder.path().join(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        }
        let first = OutputWriter::of(&open("a"), "a test", "shop").unwrap();
        for _ in 0..10 {
            let again = OutputWriter::of(&open("a"), "a test", "shop").unwrap();
            again.push(&[b'x'; 100_000]);
            assert!(Arc::ptr_eq(&first, &again));
        }
        assert!(!Arc::ptr_eq(&first, &OutputWriter::of(&open("b"), "a test", "shop").unwrap()));
    }

    #[test]
    fn an_application_whose_former_files_are_not_read_gets_no_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            Arc::new(OpenOptions::new().read(true).append(true).open(path).unwrap())
        };
        let pipes: Vec<_> = (0..=MAX_LEFT_BEHIND).map(|number| pipe(&number.to_string())).collect();
        let (last, unread) = pipes.split_last().unwrap();
        for pipe in unread {
            OutputWriter::of(pipe, "a test", "blog").unwrap().push(&[b'x'; 100_000]);
        }
        assert!(OutputWriter::of(last, "a test", "blog").is_none());
        assert!(OutputWriter::of(&unread[0], "a test", "blog").is_some(), "the thread of the same file");
        assert!(OutputWriter::of(last, "a test", "wiki").is_some(), "each application for itself");
        for pipe in unread {
            (&**pipe).read_exact(&mut [0; 100_000]).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while OutputWriter::of(last, "a test", "blog").is_none() {
            assert!(Instant::now() < deadline, "their pipes were read");
            std::thread::yield_now();
        }
    }
}
