//! The access log: where the lines of answers go.
//!
//! Lines are collected in memory and written when the thread has nothing else to do, or many have come together. The
//! file is opened by the supervisor (and again at SIGUSR1). What is no regular file may block: a thread of its own writes
//! it, one for all event loops, so that lines are whole. A line is lost only if it can't be written, or if nobody reads
//! while very many come; both are said in the log.

use howdah_background_writer::BackgroundWriter;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A thread's log.
#[derive(Default)]
pub struct AccessLog {
    sink: Option<Sink>,
    pending: String,
    complained: Cell<bool>,
    /// The file ends within a line, which could not be written whole.
    is_torn: Cell<bool>,
}

enum Sink {
    Direct(Arc<File>),
    Background(Arc<BackgroundWriter>),
}

/// Bytes that are written at once.
const WRITE_BYTES: usize = 32 * 1024;
/// How long the end waits for who reads the log.
const PATIENCE: Duration = Duration::from_secs(1);

// === impl AccessLog ===

impl AccessLog {
    /// Writes to this file from now on.
    pub fn reopen(&mut self, file: Option<Arc<File>>) {
        self.flush();
        self.sink = file.map(Sink::new);
        self.complained.set(false);
        self.is_torn.set(false);
    }

    /// Whether there is anything to write to.
    pub fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Writes what has been collected.
    pub fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        match &self.sink {
            Some(Sink::Background(writer)) => writer.push(self.pending.as_bytes()),
            Some(Sink::Direct(file)) => {
                if self.is_torn.get() {
                    self.pending.insert(0, '\n');
                }
                match write(file, self.pending.as_bytes()) {
                    Ok(()) => {
                        self.complained.set(false);
                        self.is_torn.set(false);
                    }
                    Err((error, written)) => {
                        if let Some(last) = written.checked_sub(1) {
                            self.is_torn.set(self.pending.as_bytes()[last] != b'\n');
                        }
                        if !self.complained.replace(true) {
                            tracing::error!(%error, "cannot write the access log; lines are lost until it can be written again");
                        }
                    }
                }
            }
            None => {}
        }
        self.pending.clear();
    }

    /// Adds a line, without its end.
    pub fn append(&mut self, line: &str) {
        self.pending.push_str(line);
        self.pending.push('\n');
        if self.pending.len() >= WRITE_BYTES {
            self.flush();
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
        if let Some(Sink::Background(writer)) = &self.sink {
            writer.finish(PATIENCE);
        }
    }
}

/// Writes all of the lines, or says why not, and how many bytes were written.
fn write(mut file: &File, lines: &[u8]) -> Result<(), (io::Error, usize)> {
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((error, written)),
        }
    }
    Ok(())
}

// === impl Sink ===

impl Sink {
    fn new(file: Arc<File>) -> Sink {
        /// The last one that was made.
        static SHARED: Mutex<Weak<BackgroundWriter>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = shared.upgrade().filter(|writer| writer.writes_to(&file)) {
            return Sink::Background(writer);
        }
        let Some(writer) = BackgroundWriter::of(&file, "the access log") else { return Sink::Direct(file) };
        let writer = Arc::new(writer);
        *shared = Arc::downgrade(&writer);
        Sink::Background(writer)
    }
}
