//! Writes lines to a file that may block (a pipe, a terminal) from a thread of its own.
//!
//! [`BackgroundWriter`] writes to any file; [`standard_error`] is that of the process. A caller never blocks: its lines go
//! into a queue of at most 1 MiB, and are written whole and in order. The thread starts with the first line, and exits
//! when the writer is dropped and its queue is empty.
//!
//! The first line after a pause is written at once. While lines keep coming, the thread rests between two writes: the
//! callers then need no system call to wake it, and it writes hundreds of lines with one.
//!
//! - Full queue: new lines are dropped and counted; the log reports their number when the file can be written again.
//! - Write error (no reader is left): the lines are lost; the log reports it once for each series of errors.
//! - Orderly exit: [`BackgroundWriter::finish`] waits until the queue is empty, up to a timeout.
//!
//! The users are the access log of the router (`"access_log": "-"` under systemd or Docker is a pipe), the log messages
//! of the supervisor and the router, and an application's `stderr`: a reader that stops must not stop the requests.
//!
//! tracing-appender's `non_blocking` does not replace it (0.2, read in its source): its thread starts with the writer, but
//! here that is before privileges are dropped; its queue is bounded by lines, and an access log line may have 8 KiB and
//! more; it counts lost lines but does not report them; an error in its thread is ignored, so that on a non-blocking pipe
//! (EAGAIN) the rest of a line is lost and the next one continues it; and its only flush, up to one second, is its drop.

#![forbid(unsafe_code)]

mod standard_error;

pub use standard_error::{StandardError, standard_error};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Writes to a file without blocking the caller.
#[derive(Debug)]
pub struct BackgroundWriter {
    shared: Arc<Shared>,
}

/// The thread of a writer, which may outlive it: it waits until its file takes the last lines.
#[derive(Debug)]
pub struct WriterThread(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    /// The name of the file in messages: "the access log".
    name: &'static str,
    target: Target,
    queue: Mutex<Queue>,
    /// Notified at each change of the queue.
    changed: Condvar,
}

#[derive(Debug)]
enum Target {
    File(Arc<File>),
    /// The standard error at the time of the write: a log may be reopened.
    StandardError,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whole lines that are not written yet.
    lines: Vec<u8>,
    /// The thread writes lines that it has taken.
    writing: bool,
    /// The thread sleeps until it is notified.
    sleeping: bool,
    /// Lines that were dropped since the last report.
    lost: u64,
    started: bool,
    /// The number of writers: a former one may be dropped after the next one has come.
    writers: usize,
}

/// The limit of the queue. The thread may have the same number of bytes taken.
const QUEUE_BYTES: usize = 1024 * 1024;
/// How long the thread rests after a write. Lines that come meanwhile wait as long.
const REST: Duration = Duration::from_millis(5);

// === impl BackgroundWriter ===

impl BackgroundWriter {
    /// A writer to `file`, which messages call `name`; `None` for a regular file, which does not block if its file
    /// system is local.
    pub fn of(file: &Arc<File>, name: &'static str) -> Option<BackgroundWriter> {
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return None;
        }
        Some(BackgroundWriter::of_any(file, name))
    }

    /// A writer to `file`, also if it is a regular one.
    pub fn of_any(file: &Arc<File>, name: &'static str) -> BackgroundWriter {
        BackgroundWriter::to(Target::File(Arc::clone(file)), name)
    }

    fn to(target: Target, name: &'static str) -> BackgroundWriter {
        let (queue, changed) = (Mutex::new(Queue { writers: 1, ..Queue::default() }), Condvar::new());
        BackgroundWriter { shared: Arc::new(Shared { name, target, queue, changed }) }
    }

    /// Its thread, to see whether that is left behind.
    pub fn thread(&self) -> WriterThread {
        WriterThread(Arc::downgrade(&self.shared))
    }

    /// Whether all lines are written.
    fn is_empty(&self) -> bool {
        let queue = self.shared.lock();
        !queue.writing && queue.lines.is_empty()
    }

    /// Whether it writes to this file.
    pub fn writes_to(&self, file: &Arc<File>) -> bool {
        matches!(&self.shared.target, Target::File(ours) if Arc::ptr_eq(ours, file))
    }

    /// Queues lines, or drops them if the queue is full.
    pub fn push(&self, lines: &[u8]) {
        let mut queue = self.shared.lock();
        if queue.lines.len() + lines.len() > QUEUE_BYTES {
            queue.lost += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        queue.lines.extend_from_slice(lines);
        if !queue.started {
            let shared = Arc::clone(&self.shared);
            // If no thread can be started, the lines wait, and the next call tries again.
            queue.started = thread::Builder::new().name("log writer".into()).spawn(move || shared.run()).is_ok();
        }
        if mem::take(&mut queue.sleeping) {
            drop(queue);
            self.shared.changed.notify_all();
        }
    }

    /// Writes lines: with `directly`, in the calling thread, unless others are queued before them.
    pub fn write(&self, lines: &[u8], directly: bool) {
        if directly && self.is_empty() {
            // A full disk is not a failure.
            let _ = self.shared.target.write_all(lines);
        } else {
            self.push(lines);
        }
    }

    /// Waits until all lines are written, up to the timeout: an orderly exit loses nothing, and a reader that does not
    /// read cannot block it.
    pub fn finish(&self, timeout: Duration) {
        let unfinished = |queue: &mut Queue| queue.started && (queue.writing || !queue.lines.is_empty());
        drop(self.shared.changed.wait_timeout_while(self.shared.lock(), timeout, unfinished));
    }
}

impl Write for &BackgroundWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.shared.lock().writers -= 1;
        self.shared.changed.notify_all();
    }
}

// === impl WriterThread ===

impl WriterThread {
    /// The writer again, with the lines that are left. Its thread, if that still runs, goes on.
    pub fn writer(&self) -> Option<BackgroundWriter> {
        let shared = self.0.upgrade()?;
        shared.lock().writers += 1;
        Some(BackgroundWriter { shared })
    }

    /// Whether the writer is in use, or its thread still runs.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

// === impl Shared ===

impl Shared {
    fn run(&self) {
        let mut is_reported = false;
        while let Some((lines, lost)) = self.next() {
            match self.target.write_all(&lines) {
                Ok(()) => is_reported = false,
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::error!(%error, "cannot write {}; lines are lost until it can be written again", self.name);
                }
                Err(_) => {}
            }
            if lost > 0 {
                tracing::warn!(lines = lost, "{} was not read in time: lines are lost", self.name);
            }
            self.lock().writing = false;
            self.changed.notify_all();
            thread::sleep(REST);
        }
    }

    /// Waits for lines. Returns them with the number of lines that were dropped meanwhile; `None` if the writer is gone.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let idle = |queue: &mut Queue| {
            queue.sleeping = queue.lines.is_empty() && queue.writers > 0;
            queue.sleeping
        };
        let mut queue = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if queue.lines.is_empty() {
            // The next lines, of a writer that comes back, start another thread.
            queue.started = false;
            return None;
        }
        queue.writing = true;
        Some((mem::take(&mut queue.lines), mem::take(&mut queue.lost)))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::File(file) => write_all(file.as_fd(), bytes),
            Target::StandardError => write_all(rustix::stdio::stderr(), bytes),
        }
    }
}

fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process that shares this file may have set O_NONBLOCK.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(file, PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::iter;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    const LONG: Duration = Duration::from_secs(30);

    fn pipe() -> (io::PipeReader, Arc<File>) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Arc::new(File::from(OwnedFd::from(writer))))
    }

    #[test]
    fn a_regular_file_needs_no_writer() {
        assert!(BackgroundWriter::of(&Arc::new(tempfile::tempfile().unwrap()), "x").is_none());
    }

    #[test]
    fn the_caller_never_blocks_and_queued_lines_arrive_in_order() {
        let (reader, file) = pipe();
        let writer = BackgroundWriter::of(&file, "the test's pipe").unwrap();
        drop(file);
        let line = |number: usize| format!("{number:01000}\n");
        const PUSHED: usize = 4 * QUEUE_BYTES / 1001;
        for number in 0..PUSHED {
            writer.push(line(number).as_bytes());
        }
        let reading = thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect::<Vec<_>>());
        writer.finish(LONG);
        assert_eq!(writer.shared.lock().lost, 0, "not reported");
        writer.push(line(PUSHED).as_bytes());
        drop(writer);
        let arrived = reading.join().unwrap();
        assert_eq!(arrived[0], line(0).trim_end());
        assert_eq!(arrived[arrived.len() - 1], line(PUSHED).trim_end());
        assert!(arrived.is_sorted() && arrived.iter().all(|line| line.len() == 1000));
        // The queue, the lines that the thread had taken, and the pipe's buffer.
        let most = 2 * QUEUE_BYTES / 1001 + 65;
        assert!((most / 4..=most).contains(&arrived.len()), "{}", arrived.len());
    }

    #[test]
    fn finish_waits_until_all_is_written() {
        let (mut reader, file) = pipe();
        let writer = BackgroundWriter::of(&file, "the test's pipe").unwrap();
        writer.finish(LONG);
        writer.push(b"one\ntwo\n");
        writer.finish(LONG);
        let mut arrived = [0; 8];
        reader.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"one\ntwo\n");
    }

    #[test]
    fn lines_that_keep_coming_are_written_together() {
        // Each write is a message of its own.
        let (reader, file) = UnixDatagram::pair().unwrap();
        let writer = BackgroundWriter::of(&Arc::new(File::from(OwnedFd::from(file))), "the test's socket").unwrap();
        for _ in 0..100 {
            writer.push(b"line\n");
        }
        writer.finish(LONG);
        reader.set_nonblocking(true).unwrap();
        let lengths: Vec<usize> = iter::from_fn(|| reader.recv(&mut [0; 1000]).ok()).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 500);
        assert!(lengths.len() < 50, "{lengths:?}");
    }

    #[test]
    fn a_file_without_a_reader_does_not_block_the_exit() {
        let (_reader, file) = pipe();
        let writer = BackgroundWriter::of(&file, "the test's pipe").unwrap();
        writer.push(&vec![b'\n'; 200_000]);
        writer.finish(Duration::from_millis(10));
    }

    #[test]
    fn closed_and_non_blocking_pipes_are_handled() {
        let (reader, file) = pipe();
        rustix::io::ioctl_fionbio(&*file, true).unwrap();
        let writer = BackgroundWriter::of(&file, "the test's pipe").unwrap();
        writer.push(&vec![b'\n'; 200_000]);
        let mut half = vec![0; 100_000];
        (&reader).read_exact(&mut half).unwrap();
        drop(reader);
        writer.finish(LONG);
        writer.push(b"more\n");
        writer.finish(LONG);
    }
}
