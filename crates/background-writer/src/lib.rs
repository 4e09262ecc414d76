//! A file that may make its writers wait (a pipe, a terminal), written by a thread of its own.
//!
//! Whoever logs never waits: lines go on a bounded queue. When the queue is full they are dropped and counted, and the log
//! says how many were lost as soon as somebody reads again. What can't be written (nobody will ever read) is dropped too;
//! that is said once. The thread starts with the first line, and ends when the writer is dropped and all is written.
//!
//! [`BackgroundWriter`] is one for any file; [`standard_error`] is that of the process.

#![forbid(unsafe_code)]

mod standard_error;

pub use standard_error::{StandardError, standard_error};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Writes to a file without making anybody wait.
#[derive(Debug)]
pub struct BackgroundWriter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What the file is, for messages: "the access log".
    name: &'static str,
    target: Target,
    queue: Mutex<Queue>,
    /// Something of the queue's has changed.
    changed: Condvar,
}

#[derive(Debug)]
enum Target {
    File(Arc<File>),
    /// Whatever it is at the time: it may be opened anew.
    StandardError,
}

#[derive(Debug, Default)]
struct Queue {
    /// Whole lines, which wait.
    lines: Vec<u8>,
    /// Others are being written.
    writing: bool,
    /// How many lines had no room since the last complaint.
    lost: u64,
    started: bool,
    closed: bool,
}

/// The most bytes that wait. As many may be in the thread's hands.
const QUEUE_BYTES: usize = 1024 * 1024;

// === impl BackgroundWriter ===

impl BackgroundWriter {
    /// A writer to `file`, of which messages speak as `name`; `None` for a regular file, which makes nobody wait.
    pub fn of(file: &Arc<File>, name: &'static str) -> Option<BackgroundWriter> {
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return None;
        }
        Some(BackgroundWriter::to(Target::File(Arc::clone(file)), name))
    }

    fn to(target: Target, name: &'static str) -> BackgroundWriter {
        let (queue, changed) = Default::default();
        BackgroundWriter { shared: Arc::new(Shared { name, target, queue, changed }) }
    }

    /// Whether nothing waits to be written.
    fn is_empty(&self) -> bool {
        let queue = self.shared.lock();
        !queue.writing && queue.lines.is_empty()
    }

    /// Whether it writes to this file.
    pub fn writes_to(&self, file: &Arc<File>) -> bool {
        matches!(&self.shared.target, Target::File(ours) if Arc::ptr_eq(ours, file))
    }

    /// Puts lines on the queue, or drops them if it is full.
    pub fn push(&self, lines: &[u8]) {
        let mut queue = self.shared.lock();
        if queue.lines.len() + lines.len() > QUEUE_BYTES {
            queue.lost += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        queue.lines.extend_from_slice(lines);
        if !queue.started {
            let shared = Arc::clone(&self.shared);
            // Without a thread the lines wait, and the next ones try again.
            queue.started = thread::Builder::new().name("log writer".into()).spawn(move || shared.run()).is_ok();
        }
        self.shared.changed.notify_all();
    }

    /// Waits until everything is written, but no longer than `patience`: nothing may be lost at an orderly end, and nobody
    /// who does not read may hold it up for ever.
    pub fn finish(&self, patience: Duration) {
        let unfinished = |queue: &mut Queue| queue.started && (queue.writing || !queue.lines.is_empty());
        drop(self.shared.changed.wait_timeout_while(self.shared.lock(), patience, unfinished));
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
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

// === impl Shared ===

impl Shared {
    fn run(&self) {
        let mut complained = false;
        while let Some((lines, lost)) = self.next() {
            match self.target.write_all(&lines) {
                Ok(()) => complained = false,
                Err(error) if !complained => {
                    complained = true;
                    tracing::error!(%error, "cannot write {}; lines are lost until it can be written again", self.name);
                }
                Err(_) => {}
            }
            if lost > 0 {
                tracing::warn!(lines = lost, "{} was not read in time: lines are lost", self.name);
            }
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines, and says how many were lost before the last ones were taken; `None` at the end.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let idle = |queue: &mut Queue| queue.lines.is_empty() && !queue.closed;
        let mut queue = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if queue.lines.is_empty() {
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
            // Whoever shares our standard output may have made it so.
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
    use std::os::fd::OwnedFd;

    const LONG: Duration = Duration::from_secs(30);

    fn pipe() -> (io::PipeReader, Arc<File>) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Arc::new(File::from(OwnedFd::from(writer))))
    }

    #[test]
    fn a_regular_file_needs_none() {
        assert!(BackgroundWriter::of(&Arc::new(tempfile::tempfile().unwrap()), "x").is_none());
    }

    #[test]
    fn who_writes_never_waits_and_what_has_room_arrives_in_order() {
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
        // The queue, what the thread had in its hands, and what is in the pipe.
        let most = 2 * QUEUE_BYTES / 1001 + 65;
        assert!((most / 4..=most).contains(&arrived.len()), "{}", arrived.len());
    }

    #[test]
    fn all_is_written_when_it_is_finished() {
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
    fn a_file_that_nobody_reads_does_not_hold_up_the_end() {
        let (_reader, file) = pipe();
        let writer = BackgroundWriter::of(&file, "the test's pipe").unwrap();
        writer.push(&vec![b'\n'; 200_000]);
        writer.finish(Duration::from_millis(10));
    }

    #[test]
    fn a_pipe_without_a_reader_and_one_that_does_not_block_are_no_trouble() {
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
