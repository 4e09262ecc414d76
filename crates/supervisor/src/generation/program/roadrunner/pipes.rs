//! The pipes of a worker: its standard input, which gets requests, and its standard output, which has the answers.
//!
//! They are pipes, and not sockets: no descriptor can come through them. The supervisor keeps its ends while the worker
//! runs: it orders the worker to exit, and hands the ends to a router. Our ends do not block.

use crate::generation::program::roadrunner::handshake::Handshake;
use howdah_goridge::frame;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;

/// The pipes of a worker through all its restarts.
#[derive(Debug, Default)]
pub struct WorkerPipes {
    /// `None` while no worker runs.
    ends: Option<PipeEnds>,
}

#[derive(Debug)]
struct PipeEnds {
    requests: OwnedFd,
    answers: OwnedFd,
}

/// How much text is read for an error message.
const TEXT_BYTES: usize = 256;

// === impl WorkerPipes ===

impl WorkerPipes {
    /// Makes pipes for another worker. Returns its standard input and output.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn open(&mut self) -> io::Result<(OwnedFd, OwnedFd)> {
        self.ends = None;
        let (stdin, requests) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&requests, OFlags::NONBLOCK)?;
        fcntl_setfl(&answers, OFlags::NONBLOCK)?;
        self.ends = Some(PipeEnds { requests, answers });
        Ok((stdin, stdout))
    }

    /// Begins the handshake.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn begin_handshake(&self) -> io::Result<Handshake> {
        let (requests, answers) = self.duplicates()?;
        Ok(Handshake::begin(requests, answers))
    }

    /// The ends for a router: that of the requests, then that of the answers.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn for_router(&self) -> io::Result<Vec<OwnedFd>> {
        let (requests, answers) = self.duplicates()?;
        Ok(vec![requests, answers])
    }

    /// Orders the worker to exit when it has finished its request.
    pub fn order_exit(&self) {
        if let Some(ends) = &self.ends {
            // A worker that reads nothing is killed later.
            let _ = rustix::io::write(&ends.requests, &frame::exit_frame());
        }
    }

    /// Text that a dead process wrote to its standard output after `beginning`, for an error message.
    pub fn last_text(&self, beginning: Option<Vec<u8>>) -> Option<String> {
        let mut text = beginning.unwrap_or_default();
        let mut rest = [0; TEXT_BYTES];
        if let Some(ends) = &self.ends
            && let Ok(length) = rustix::io::read(&ends.answers, &mut rest)
        {
            text.extend_from_slice(&rest[..length]);
        }
        (!text.is_empty()).then(|| frame::quoted(&text))
    }

    /// Closes our ends. A worker that still writes its answer to a router that died gets an error.
    pub fn close(&mut self) {
        self.ends = None;
    }

    fn duplicates(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        let ends = self.ends.as_ref().ok_or_else(|| io::Error::other("the process has no pipes"))?;
        Ok((ends.requests.try_clone()?, ends.answers.try_clone()?))
    }
}
