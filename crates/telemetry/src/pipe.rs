//! The pipe between the router and the process that exports. Its memory is the bound of what waits there.

use crate::frames::{self, Encoded, Marker};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Both ends.
#[derive(Debug)]
pub struct SpanPipe {
    /// Where the process that exports reads.
    pub read: OwnedFd,
    /// Where routers write.
    pub write: OwnedFd,
    /// The beginning of each frame.
    pub marker: Marker,
}

/// The end that writes.
#[derive(Debug)]
pub struct SpanWriter {
    pipe: OwnedFd,
    marker: Marker,
}

/// Why spans were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The pipe is full.
    Full,
    /// They are too long for a frame.
    TooLong,
}

/// The size of the pipe: some thousand spans. Every user may have it.
const PIPE_BYTES: usize = 1024 * 1024;

/// The pipe of all threads of this process.
static WRITER: OnceLock<SpanWriter> = OnceLock::new();

/// Lets all threads of this process write here.
pub fn set_writer(writer: SpanWriter) {
    // A process has one role.
    let _ = WRITER.set(writer);
}

/// Calls `act` with the pipe of this process; `None` in a process without one, such as a unit test.
pub fn with_writer<T>(act: impl FnOnce(&SpanWriter) -> T) -> Option<T> {
    WRITER.get().map(act)
}

// === impl SpanPipe ===

impl SpanPipe {
    /// A pipe.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn open() -> io::Result<SpanPipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel may allow less: then fewer spans can wait.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
        // The standard library's keys are random.
        let marker = RandomState::new().hash_one(std::process::id());
        Ok(SpanPipe { read, write, marker })
    }
}

// === impl SpanWriter ===

impl SpanWriter {
    /// The end that writes.
    ///
    /// # Errors
    /// When it is no pipe.
    pub fn new(pipe: OwnedFd, marker: Marker) -> io::Result<SpanWriter> {
        // A writer that waits would stop an event loop.
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(SpanWriter { pipe, marker })
    }

    /// Writes the spans of a request, without waiting.
    ///
    /// # Errors
    /// When there is no room for them: they are lost.
    pub fn write(&self, spans: &Encoded) -> Result<(), Lost> {
        let frame = frames::frame(self.marker, spans).ok_or(Lost::TooLong)?;
        loop {
            match rustix::io::write(self.pipe.as_fd(), &frame) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Lost::Full),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::FrameReader;
    use crate::signal::Signal;

    #[test]
    fn a_full_pipe_loses_whole_frames_and_keeps_the_others() {
        let pipe = SpanPipe::open().expect("a pipe");
        let writer = SpanWriter::new(pipe.write, 7).expect("a writer");
        let spans = |n: u16| Encoded { signal: Signal::Traces, count: 1, encoded: n.to_le_bytes().repeat(300) };
        let written = (0..60_000).take_while(|n| writer.write(&spans(*n)).is_ok()).count();
        assert!((100..10_000).contains(&written), "{written}");
        assert_eq!(writer.write(&spans(1)), Err(Lost::Full));
        let (mut reader, mut buffer, mut found) = (FrameReader::new(7), vec![0; 10_000], Vec::new());
        while let Ok(count) = rustix::io::read(&pipe.read, buffer.as_mut_slice()) {
            found.extend(reader.take(&buffer[..count]));
        }
        assert_eq!(found, (0..written as u16).map(spans).collect::<Vec<_>>());
        assert_eq!(writer.write(&spans(1)), Ok(()), "there is room again");
    }

    #[test]
    fn spans_that_are_too_long_are_lost() {
        let pipe = SpanPipe::open().expect("a pipe");
        let writer = SpanWriter::new(pipe.write, 7).expect("a writer");
        assert_eq!(
            writer.write(&Encoded { signal: Signal::Traces, count: 1, encoded: vec![0; 5000] }),
            Err(Lost::TooLong)
        );
    }
}
