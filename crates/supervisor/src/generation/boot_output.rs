//! What a prototype says on standard error while it starts, and its workers while they are warmed: passed on to ours, or
//! its own file, and the end kept for an answer.
//!
//! Otherwise they have that standard error themselves. What the prototype started meanwhile may go on writing here.

use howdah_background_writer::{BackgroundWriter, standard_error};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::{self, Receiver};

/// How much is kept, in bytes and in lines.
const KEPT_BYTES: usize = 4096;
const KEPT_LINES: usize = 10;
/// How much is read at once.
const CHUNK_BYTES: usize = 16384;
/// A dead prototype has not more than this in its pipe, unless somebody else writes there, too.
const CHUNKS_OF_THE_DEAD: usize = 64;

/// A pipe's end, and the last that came out of it.
#[derive(Debug)]
pub struct Said {
    /// `None` when nobody can write any more.
    pipe: Option<Receiver>,
    kept: Vec<u8>,
    /// The application's `stderr`; `None` is our standard error.
    file: Option<Output>,
}

#[derive(Debug)]
enum Output {
    File(Arc<File>),
    /// One that may make its writers wait.
    Slow(BackgroundWriter),
}

// === impl Said ===

impl Said {
    /// The prototype's end, too.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn pipe(file: Option<File>) -> io::Result<(Said, OwnedFd)> {
        let (sender, receiver) = pipe::pipe()?;
        let file = file.map(Arc::new).map(|file| match BackgroundWriter::of(&file, "an application's stderr") {
            Some(writer) => Output::Slow(writer),
            None => Output::File(file),
        });
        Ok((Said { pipe: Some(receiver), kept: Vec::new(), file }, sender.into_blocking_fd()?))
    }

    /// Passes on what there is, or asks to be called again.
    pub fn poll(&mut self, cx: &mut Context<'_>) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut memory = [0; CHUNK_BYTES];
        let mut buffer = ReadBuf::new(&mut memory);
        match Pin::new(pipe).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.take(buffer.filled());
                // The others come first.
                cx.waker().wake_by_ref();
            }
            Poll::Ready(_) => self.pipe = None,
            Poll::Pending => {}
        }
    }

    /// The last lines of a prototype that is dead; empty if it said nothing.
    pub fn last_lines(&mut self) -> String {
        for _ in 0..CHUNKS_OF_THE_DEAD {
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

    /// What was said until now is not kept.
    pub fn forget(&mut self) {
        let _ = self.last_lines();
        self.kept.clear();
    }

    fn take(&mut self, said: &[u8]) {
        match &self.file {
            Some(Output::File(file)) => drop((&**file).write_all(said)),
            Some(Output::Slow(writer)) => writer.push(said),
            None => standard_error().push(said),
        }
        self.kept.extend_from_slice(said);
        let excess = self.kept.len().saturating_sub(KEPT_BYTES);
        self.kept.drain(..excess);
    }
}

/// Without control characters: they are for an answer, which a terminal may show.
fn last_lines(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
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

    #[test]
    fn the_last_lines_are_kept_and_clean() {
        assert_eq!(last_lines(b""), "");
        assert_eq!(last_lines(b"\na\x1b[31m b\r\n\n\xffc"), "a [31m b\n\u{fffd}c");
        let many: String = (0..100).map(|number| format!("line {number}\n")).collect();
        assert_eq!(last_lines(many.as_bytes()).lines().next(), Some("line 90"));
    }

    #[tokio::test]
    async fn what_a_dead_prototype_said_is_all_there() {
        let (mut said, theirs) = Said::pipe(Some(tempfile::tempfile().unwrap())).unwrap();
        assert_eq!(said.last_lines(), "", "it does not wait");
        let mut theirs = File::from(theirs);
        theirs.write_all(&[b'x'; 30_000]).unwrap();
        theirs.write_all(b"\nthe end\n").unwrap();
        drop(theirs);
        assert!(said.last_lines().ends_with("x\nthe end"));
        assert!(said.kept.len() <= KEPT_BYTES && said.pipe.is_none());
    }
}
