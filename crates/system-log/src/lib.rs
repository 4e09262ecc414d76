//! Sends log lines to a daemon, syslog or the journal of systemd, from a thread of its own.
//!
//! A caller of [`SystemLog::push`] never waits: its record goes into a queue of at most 1 MiB. The thread makes a message
//! of each record, and sends it. It starts with the first record, and exits when the log is dropped and its queue is empty.
//!
//! - Daemon away: the records wait, and the thread tries again after pauses of up to five seconds.
//! - Full queue: new records are lost. The number of lost records is logged when the daemon is back.
//! - Too long a message: it is cut, which the message notes.
//! - Orderly exit: [`SystemLog::finish`] waits until the queue is empty, up to a timeout.
//!
//! The modules: [`log`] counts the lost lines; [`record`], `journal` and `syslog` make the messages, `connection` sends them. The warnings of this crate
//! have its name as their target ([`TARGET`]): a process whose own log is such a log must write them to another place.

#![forbid(unsafe_code)]

mod connection;
mod journal;
pub mod log;
pub mod record;
mod syslog;
mod text;

use connection::Connection;
use howdah_config::LogDaemon;
use log::Log;
use record::Record;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The target of this crate's own warnings.
pub const TARGET: &str = "howdah_system_log";

/// A log that a daemon keeps.
#[derive(Debug)]
pub struct SystemLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Log,
    daemon: LogDaemon,
    queue: Mutex<Queue>,
    /// Notified at each change of the queue.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Record>,
    bytes: usize,
    /// A record was taken, and is not sent yet.
    sending: bool,
    /// The thread sleeps until it is notified.
    sleeping: bool,
    /// Records that were lost since the last report.
    lost: u64,
    started: bool,
    closed: bool,
    /// The process is about to exit: pauses are over.
    hurried: bool,
}

/// The reports of the thread to howdah's log.
#[derive(Debug, Default)]
struct Reporter {
    /// When the last failure was logged.
    last: Option<Instant>,
    /// The daemon is away, and this was logged.
    is_away: bool,
}

/// The limit of the queue.
const QUEUE_BYTES: usize = 1024 * 1024;
/// The first pause after a failure, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// A message that is longer than the kernel accepts is cut to half of its length, but not below this.
const SHORTEST_LIMIT: usize = 512;

// === impl SystemLog ===

impl SystemLog {
    /// This log at this daemon, which need not run yet.
    pub fn new(daemon: &LogDaemon, log: Log) -> SystemLog {
        let (queue, changed) = Default::default();
        SystemLog { shared: Arc::new(Shared { log, daemon: daemon.clone(), queue, changed }) }
    }

    /// Whether this is its daemon.
    pub fn sends_to(&self, daemon: &LogDaemon) -> bool {
        self.shared.daemon == *daemon
    }

    /// Queues a record; it is lost if the queue is full.
    pub fn push(&self, record: Record) {
        let mut queue = self.shared.lock();
        let bytes = record.bytes();
        if queue.bytes + bytes > QUEUE_BYTES {
            self.shared.lose(&mut queue, 1);
            return;
        }
        queue.bytes += bytes;
        queue.records.push_back(record);
        if !queue.started {
            let shared = Arc::clone(&self.shared);
            // If no thread can be started, the records wait, and the next call tries again.
            queue.started = thread::Builder::new().name("system log".into()).spawn(move || shared.run()).is_ok();
        }
        if mem::take(&mut queue.sleeping) {
            drop(queue);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until all records are sent, up to the timeout.
    pub fn finish(&self, timeout: Duration) {
        let mut queue = self.shared.lock();
        queue.hurried = true;
        self.shared.changed.notify_all();
        let unfinished = |queue: &mut Queue| queue.started && (queue.sending || !queue.records.is_empty());
        let (mut queue, _) =
            self.shared.changed.wait_timeout_while(queue, timeout, unfinished).unwrap_or_else(PoisonError::into_inner);
        queue.hurried = false;
    }
}

impl Drop for SystemLog {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

// === impl Shared ===

impl Shared {
    fn run(&self) {
        let (mut connection, mut reporter) = (None, Reporter::default());
        while let Some(record) = self.next() {
            let mut pause = FIRST_PAUSE;
            loop {
                let was_open = connection.is_some();
                match self.send(&mut connection, &record) {
                    Ok(()) => {
                        reporter.sent(self);
                        break;
                    }
                    Err(error) => {
                        connection = None;
                        reporter.failed(self, &error);
                        if self.wait(pause) {
                            pause = (pause * 2).min(MAX_PAUSE);
                        } else if !was_open {
                            // A new connection failed, too, and the log is gone.
                            self.give_up(1);
                            break;
                        }
                    }
                }
            }
            self.lock().sending = false;
            self.changed.notify_all();
        }
        let lost = self.lock().lost;
        if lost > 0 {
            tracing::warn!(lines = lost, "lines of {} are lost: {} was away", self.log.name(), self.daemon);
        }
    }

    /// Waits for a record, and takes it; `None` if the log is gone.
    fn next(&self) -> Option<Record> {
        let idle = |queue: &mut Queue| {
            queue.sleeping = queue.records.is_empty() && !queue.closed;
            queue.sleeping
        };
        let mut queue = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let record = queue.records.pop_front()?;
        queue.bytes -= record.bytes();
        queue.sending = true;
        Some(record)
    }

    fn send(&self, connection: &mut Option<Connection>, record: &Record) -> io::Result<()> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(&self.daemon)?),
        };
        let most = |limit: usize| match &self.daemon {
            LogDaemon::Journal(_) => journal::message(record, limit),
            LogDaemon::Syslog(syslog) => syslog::message(syslog, record, limit),
        };
        let mut limit = match &self.daemon {
            LogDaemon::Journal(_) => journal::LIMIT,
            LogDaemon::Syslog(_) => syslog::LIMIT,
        };
        loop {
            match connection.send(&most(limit)) {
                Err(error) if connection::is_too_long(&error) && limit > SHORTEST_LIMIT => limit /= 2,
                // It is lost, and the next one may be shorter.
                Err(error) if connection::is_too_long(&error) => {
                    self.lose(&mut self.lock(), 1);
                    return Ok(());
                }
                sent => return sent,
            }
        }
    }

    /// Waits before the next attempt. `false` if there is no time for it.
    fn wait(&self, pause: Duration) -> bool {
        let queue = self.lock();
        if queue.closed {
            return false;
        }
        // A process that is about to exit must not make this thread spin.
        let was_hurried = queue.hurried;
        let pause = if was_hurried { FIRST_PAUSE } else { pause };
        let waits = |queue: &mut Queue| !queue.closed && (was_hurried || !queue.hurried);
        drop(self.changed.wait_timeout_while(queue, pause, waits));
        true
    }

    /// Gives up all records of a log that is gone, and `more`: each attempt may take seconds.
    fn give_up(&self, more: u64) {
        let mut queue = self.lock();
        let lines = more + queue.records.len() as u64;
        self.lose(&mut queue, lines);
        queue.records.clear();
        queue.bytes = 0;
    }

    fn lose(&self, queue: &mut Queue, lines: u64) {
        queue.lost += lines;
        self.log.count_lost(lines);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Reporter ===

impl Reporter {
    fn failed(&mut self, shared: &Shared, error: &io::Error) {
        if self.last.is_some_and(|last| last.elapsed() < REPORT_INTERVAL) {
            return;
        }
        (self.last, self.is_away) = (Some(Instant::now()), true);
        let (name, daemon) = (shared.log.name(), &shared.daemon);
        let lost = shared.lock().lost;
        tracing::warn!(
            %error, lost,
            "{daemon} does not take lines of {name}; up to 1 MiB of them wait, further ones are lost; is the daemon running?"
        );
    }

    fn sent(&mut self, shared: &Shared) {
        let was_away = std::mem::take(&mut self.is_away);
        let is_due = was_away || self.last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL);
        // Nothing is logged while the queue is locked.
        let lost = if is_due { std::mem::take(&mut shared.lock().lost) } else { 0 };
        if lost > 0 {
            self.last = Some(Instant::now());
        }
        match (was_away, lost) {
            (false, 0) => {}
            (true, _) => tracing::warn!("{} is written again; {lost} lines are lost", shared.log.name()),
            (false, _) => {
                tracing::warn!(
                    "{lost} lines of {} are lost: the queue was full, or they were too long",
                    shared.log.name()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Severity;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;

    const LONG: Duration = Duration::from_secs(30);

    fn log(path: &Path) -> SystemLog {
        SystemLog::new(&format!("syslog:{}", path.display()).parse().expect("a daemon"), Log::Access)
    }

    fn record(text: &str) -> Record {
        Record::new(Severity::Info, Log::Access, text.to_owned())
    }

    fn received(daemon: &UnixDatagram) -> String {
        let mut buffer = vec![0; 300_000];
        let length = daemon.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..length].to_vec()).expect("UTF-8")
    }

    #[test]
    fn records_wait_for_a_daemon_that_is_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = log(&path);
        for text in ["first", "second"] {
            log.push(record(text));
        }
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        daemon.set_read_timeout(Some(LONG)).expect("a timeout");
        assert!(received(&daemon).ends_with(" first"));
        assert!(received(&daemon).ends_with(" second"));
        drop(daemon);
        std::fs::remove_file(&path).expect("removed");
        log.push(record("third"));
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        daemon.set_read_timeout(Some(LONG)).expect("a timeout");
        assert!(received(&daemon).ends_with(" third"), "a daemon that was restarted loses nothing");
        log.finish(LONG);
    }

    #[test]
    fn a_full_queue_loses_new_records_and_counts_them() {
        let log = SystemLog::new(&"syslog:/nowhere/log".parse().expect("a daemon"), Log::Error);
        let text = "x".repeat(10_000);
        (0..200).for_each(|_| log.push(record(&text)));
        let queue = log.shared.lock();
        assert!(queue.bytes <= QUEUE_BYTES && (90..=105).contains(&queue.records.len()), "{}", queue.records.len());
        // The thread may have taken one.
        assert!((95..=110).contains(&queue.lost), "{}", queue.lost);
        assert_eq!(Log::Error.take_lost(), queue.lost, "no other test of this process loses lines of this log");
        assert_eq!(Log::Error.take_lost(), 0);
    }

    #[test]
    fn a_daemon_that_is_away_does_not_block_the_exit() {
        let log = log(Path::new("/nowhere/log"));
        log.push(record("x"));
        let began = Instant::now();
        log.finish(Duration::from_millis(50));
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_long_message_is_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let daemon = UnixDatagram::bind(&path).expect("a socket");
        let log = log(&path);
        log.push(record(&"ü".repeat(400_000)));
        let message = received(&daemon);
        assert!(message.len() <= syslog::LIMIT && message.contains("ü... ["), "{}", message.len());
        let journal = SystemLog::new(&format!("journald:{}", path.display()).parse().expect("a daemon"), Log::Access);
        journal.push(record(&"ü".repeat(400_000)));
        assert!(received(&daemon).len() <= 2 * journal::LIMIT);
    }
}
