//! The access log: a line for each answer, in the combined format.
//!
//! Lines are collected in memory and written when the thread has nothing else to do, or many have come together. The
//! file is opened by the supervisor (and again at SIGUSR1). What is no regular file may block: a thread of its own writes
//! it, one for all event loops, so that lines are whole. A line is lost only if it can't be written, or if nobody reads
//! while very many come; both are said in the log.

use crate::background_writer::BackgroundWriter;
use crate::thread;
use http::HeaderValue;
use http::header::{REFERER, USER_AGENT};
use http::request::Parts;
use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use time::OffsetDateTime;

/// A thread's log.
#[derive(Default)]
pub struct AccessLog {
    sink: Option<Sink>,
    pending: String,
    complained: Cell<bool>,
}

enum Sink {
    Direct(Arc<File>),
    Background(Arc<BackgroundWriter>),
}

/// What a line will say.
pub struct Entry {
    remote: Rc<str>,
    request_line: String,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    /// The answer's status code.
    pub status: u16,
    /// Bytes of the answer's body that were handed out.
    pub body_bytes: u64,
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
                if let Err(error) = (&**file).write_all(self.pending.as_bytes())
                    && !self.complained.replace(true)
                {
                    tracing::error!(%error, "cannot write the access log; lines are lost until it can be written again");
                }
            }
            None => {}
        }
        self.pending.clear();
    }

    fn append(&mut self, entry: &Entry) {
        const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let now = OffsetDateTime::now_utc();
        let text = |value: &Option<HeaderValue>| match value {
            Some(value) => escape(&String::from_utf8_lossy(value.as_bytes())),
            None => "-".into(),
        };
        let _ = writeln!(
            self.pending,
            "{} - - [{:02}/{}/{}:{:02}:{:02}:{:02} +0000] \"{}\" {} {} \"{}\" \"{}\"",
            entry.remote,
            now.day(),
            MONTHS[now.month() as usize - 1],
            now.year(),
            now.hour(),
            now.minute(),
            now.second(),
            escape(&entry.request_line),
            entry.status,
            entry.body_bytes,
            text(&entry.referer),
            text(&entry.user_agent),
        );
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

// === impl Entry ===

impl Entry {
    /// The beginning of a line.
    pub fn new(remote: Rc<str>, request: &Parts) -> Entry {
        Entry {
            remote,
            request_line: format!("{} {} {:?}", request.method, request.uri, request.version),
            referer: request.headers.get(REFERER).cloned(),
            user_agent: request.headers.get(USER_AGENT).cloned(),
            status: 0,
            body_bytes: 0,
        }
    }

    /// A line for bytes that were no request, and were answered 400.
    pub fn of_no_request(remote: Rc<str>) -> Entry {
        Entry { remote, request_line: "-".into(), referer: None, user_agent: None, status: 400, body_bytes: 0 }
    }

    /// Adds the line to the thread's log.
    pub fn write(&self) {
        thread::with_access_log(|log| log.append(self));
    }
}

/// Quotes and control characters must not end the field or the line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '"' || c == '\\' || c.is_control() {
            let _ = write!(escaped, "\\x{:02X}", c as u32);
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sends_can_not_forge_a_line() {
        assert_eq!(escape("a\"b\nc\\"), "a\\x22b\\x0Ac\\x5C");
    }
}
