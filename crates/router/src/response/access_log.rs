//! The access log: the destination of its lines.
//!
//! Lines are collected in memory and written when the thread has no other work, or when many have collected. The
//! supervisor opens the file (again at SIGUSR1). A destination that is not a regular file of a local file system may
//! block: one background thread writes to it for all event loops, so that lines stay whole. A line is lost only if it
//! cannot be written, or if no program reads while very many lines arrive; the log reports both.

use howdah_background_writer::BackgroundWriter;
use howdah_blocking_work::mounts::never_waits;
use howdah_config::{LogDaemon, LogDestination};
use howdah_system_log::SystemLog;
use howdah_system_log::log::Log;
use howdah_system_log::record::{Record, Severity};
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A thread's log.
#[derive(Default)]
pub struct AccessLogWriter {
    sink: Option<Sink>,
    pending: String,
    /// The current write error was logged.
    error_logged: Cell<bool>,
    /// The file ends within a line that could not be written completely.
    is_torn: Cell<bool>,
}

enum Sink {
    Direct(Arc<File>),
    Background(Arc<BackgroundWriter>),
    /// A log daemon: a thread of its own sends the lines.
    Daemon(Arc<SystemLog>),
}

/// Names and values of a line, beside its text.
pub type LineFields = Vec<(Cow<'static, str>, String)>;

/// Lines are written when this number of bytes has collected.
const WRITE_BYTES: usize = 32 * 1024;
/// How long a drop waits for the program that reads the log.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

// === impl AccessLogWriter ===

impl AccessLogWriter {
    /// Writes to this destination from now on; `file` is open, if it is one.
    pub fn open(&mut self, destination: Option<&LogDestination>, file: Option<Arc<File>>) {
        self.flush();
        self.sink = match destination {
            Some(LogDestination::Daemon(daemon)) => Some(Sink::of_daemon(daemon)),
            _ => None,
        };
        if let Some(file) = file {
            self.reopen(file);
        }
    }

    /// Writes to this file from now on.
    pub fn reopen(&mut self, file: Arc<File>) {
        self.flush();
        self.sink = Some(Sink::new(file));
        self.error_logged.set(false);
        self.is_torn.set(false);
    }

    /// Whether there is a destination.
    pub fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether lines are to have fields.
    pub fn takes_fields(&self) -> bool {
        matches!(self.sink, Some(Sink::Daemon(_)))
    }

    /// Writes the collected lines.
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
                        self.error_logged.set(false);
                        self.is_torn.set(false);
                    }
                    Err((error, written)) => {
                        if let Some(last) = written.checked_sub(1) {
                            self.is_torn.set(self.pending.as_bytes()[last] != b'\n');
                        }
                        if !self.error_logged.replace(true) {
                            tracing::error!(%error, "cannot write the access log; lines are lost until it can be written again");
                        }
                    }
                }
            }
            // Nothing is collected for a daemon.
            Some(Sink::Daemon(_)) | None => {}
        }
        self.pending.clear();
    }

    /// Adds a line, without its end.
    pub fn append(&mut self, line: &str, fields: &LineFields) {
        if let Some(Sink::Daemon(log)) = &self.sink {
            let record = Record::new(Severity::Info, Log::Access, line.to_owned());
            return log.push(Record { fields: fields.clone(), ..record });
        }
        self.pending.push_str(line);
        self.pending.push('\n');
        if self.pending.len() >= WRITE_BYTES {
            self.flush();
        }
    }
}

impl Drop for AccessLogWriter {
    fn drop(&mut self) {
        self.flush();
        match &self.sink {
            Some(Sink::Background(writer)) => writer.finish(FINISH_TIMEOUT),
            Some(Sink::Daemon(log)) => log.finish(FINISH_TIMEOUT),
            Some(Sink::Direct(_)) | None => {}
        }
    }
}

/// Writes all of the lines, or returns the error and how many bytes were written.
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
        /// The last background writer, shared by all threads.
        static SHARED: Mutex<Weak<BackgroundWriter>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = shared.upgrade().filter(|writer| writer.writes_to(&file)) {
            return Sink::Background(writer);
        }
        let writer = match never_waits(&file) {
            true => BackgroundWriter::of(&file, Log::Access.name()),
            false => Some(BackgroundWriter::of_any(&file, Log::Access.name())),
        };
        let Some(writer) = writer else { return Sink::Direct(file) };
        let writer = Arc::new(writer);
        *shared = Arc::downgrade(&writer);
        Sink::Background(writer)
    }

    fn of_daemon(daemon: &LogDaemon) -> Sink {
        /// The last one, shared by all threads.
        static SHARED: Mutex<Weak<SystemLog>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = shared.upgrade().filter(|log| log.sends_to(daemon)) {
            return Sink::Daemon(log);
        }
        let log = Arc::new(SystemLog::new(daemon, Log::Access));
        *shared = Arc::downgrade(&log);
        Sink::Daemon(log)
    }
}
