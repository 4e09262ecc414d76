//! The output of a process on standard error: it is copied to our standard error, or to the application's own file, and
//! its end is kept for an error message.
//!
//! A prototype writes here while it boots, and its workers during the warm-up; at other times they write directly, or to a
//! pipe of their own ([`own_streams`](super::own_streams)).
//! Background processes that the prototype started while it booted may go on writing here. An HTTP server writes here for
//! its whole life.
//!
//! It is copied at a limited rate: a process that floods its log waits, as for any pipe. A thread writes it: the file may be
//! in a file system that hangs.

use crate::os::files::output_writer::OutputWriter;
use howdah_background_writer::standard_error;
use rustix::io::Errno;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::{self, Receiver};
use tokio::time::{Instant, Sleep};

/// The size of the end that is kept, in bytes and in lines.
const KEPT_BYTES: usize = 8192;
const KEPT_LINES: usize = 40;
/// The size of one read.
const CHUNK_BYTES: usize = 16384;
/// How many bytes are copied within this time.
const COPIED_BYTES: usize = 256 * 1024;
const COPY_WINDOW: Duration = Duration::from_millis(100);
/// The pipe of a dead process holds at most this number of reads, unless another process still writes to it.
const MAX_FINAL_READS: usize = 64;

/// The reading end of a pipe, and the last output that came out of it.
#[derive(Debug)]
pub struct ProcessOutput {
    /// `None` when all writers have closed it.
    pipe: Option<Receiver>,
    kept: Vec<u8>,
    /// Where it is copied to; `None` is our standard error.
    file: Option<Arc<OutputWriter>>,
    rate: CopyRate,
}

/// How much is copied in a window. Pipes may share it.
#[derive(Debug)]
pub struct CopyRate {
    window: Arc<Mutex<Window>>,
    /// Until the next window, when this one has all that it may have.
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    copied: usize,
}

// === impl ProcessOutput ===

impl ProcessOutput {
    /// Creates a pipe. Returns the end of the process too.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn pipe(file: Option<Arc<OutputWriter>>) -> io::Result<(ProcessOutput, OwnedFd)> {
        ProcessOutput::pipe_at(file, CopyRate::new())
    }

    /// The same, at the rate that other pipes may share.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn pipe_at(file: Option<Arc<OutputWriter>>, rate: CopyRate) -> io::Result<(ProcessOutput, OwnedFd)> {
        let (sender, receiver) = pipe::pipe()?;
        let output = ProcessOutput { pipe: Some(receiver), kept: Vec::new(), file, rate };
        Ok((output, sender.into_blocking_fd()?))
    }

    /// Copies what has arrived, and registers for the next output.
    pub fn poll(&mut self, cx: &mut Context<'_>) {
        let Some(pipe) = &mut self.pipe else { return };
        if self.rate.poll(cx).is_pending() {
            return;
        }
        let mut memory = [0; CHUNK_BYTES];
        let mut buffer = ReadBuf::new(&mut memory);
        match Pin::new(pipe).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.rate.window().copied += buffer.filled().len();
                self.take(buffer.filled());
                // Other events come first.
                cx.waker().wake_by_ref();
            }
            Poll::Ready(_) => self.pipe = None,
            Poll::Pending => {}
        }
    }

    /// Copies everything, until all writers have closed the pipe.
    pub async fn copy_all(&mut self) {
        poll_fn(|cx| {
            self.poll(cx);
            if self.pipe.is_none() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The last lines of a process that is dead; empty if there was no output.
    pub fn last_lines(&mut self) -> String {
        for _ in 0..MAX_FINAL_READS {
            let Some(pipe) = &self.pipe else { break };
            let mut buffer = [0; CHUNK_BYTES];
            match rustix::io::read(pipe.as_fd(), &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(length) => self.take(&buffer[..length]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        last_lines(&self.kept)
    }

    /// Forgets all output so far.
    pub fn forget(&mut self) {
        let _ = self.last_lines();
        self.kept.clear();
    }

    fn take(&mut self, output: &[u8]) {
        match &self.file {
            Some(writer) => writer.push(output),
            None => standard_error().push(output),
        }
        self.kept.extend_from_slice(output);
        let excess = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..excess);
    }
}

// === impl CopyRate ===

impl CopyRate {
    /// A rate for one pipe.
    pub fn new() -> CopyRate {
        CopyRate { window: Arc::new(Mutex::new(Window { since: Instant::now(), copied: 0 })), pause: None }
    }

    /// The same rate for another pipe: together they copy as much as one.
    pub fn share(&self) -> CopyRate {
        CopyRate { window: Arc::clone(&self.window), pause: None }
    }

    /// Whether more may be copied now. Registers for the time when it may.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut window = self.window();
            if window.since.elapsed() >= COPY_WINDOW {
                *window = Window { since: Instant::now(), copied: 0 };
            }
            let (is_full, end) = (window.copied >= COPIED_BYTES, window.since + COPY_WINDOW);
            drop(window);
            if !is_full {
                self.pause = None;
                return Poll::Ready(());
            }
            ready!(self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end))).as_mut().poll(cx));
            self.pause = None;
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // The window is complete at any time.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without control characters, because a terminal may show the error message.
fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
        .filter(|line: &String| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(KEPT_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn the_last_lines_are_kept_and_clean() {
        assert_eq!(last_lines(b""), "");
        assert_eq!(last_lines(b"\na\x1b[31m b\r\n\n\xffc"), "a [31m b\n\u{fffd}c");
        let many: String = (0..100).map(|number| format!("line {number}\n")).collect();
        assert_eq!(last_lines(many.as_bytes()).lines().next(), Some("line 60"));
    }

    #[tokio::test]
    async fn a_window_has_a_limit_for_all_pipes_that_share_it() {
        let mut rate = CopyRate::new();
        let mut other = rate.share();
        rate.window().copied = COPIED_BYTES - 1;
        let window = rate.window().since;
        poll_fn(|cx| rate.poll(cx)).await;
        assert!(rate.window().since == window || window.elapsed() >= COPY_WINDOW);
        for rate in [&mut rate, &mut other] {
            let window = rate.window().since;
            rate.window().copied = COPIED_BYTES + CHUNK_BYTES;
            poll_fn(|cx| rate.poll(cx)).await;
            assert!(rate.window().copied == 0 && window.elapsed() >= COPY_WINDOW, "{:?}", window.elapsed());
        }
    }

    #[tokio::test]
    async fn the_output_of_a_dead_process_is_complete() {
        let file = OutputWriter::of(&Arc::new(tempfile::tempfile().unwrap()), "a test", "shop");
        let (mut output, theirs) = ProcessOutput::pipe(file).unwrap();
        assert_eq!(output.last_lines(), "", "it does not wait");
        let mut theirs = File::from(theirs);
        theirs.write_all(&[b'x'; 30_000]).unwrap();
        theirs.write_all(b"\nthe end\n").unwrap();
        drop(theirs);
        assert!(output.last_lines().ends_with("x\nthe end"));
        // A process that another test has just forked has the pipe, too, until it runs its program.
        for _ in 0..1000 {
            if output.pipe.is_none() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            output.last_lines();
        }
        assert!(output.kept.len() <= KEPT_BYTES && output.pipe.is_none());
    }
}
