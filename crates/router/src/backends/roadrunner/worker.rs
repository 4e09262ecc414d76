//! A worker of RoadRunner, on the side of the router: its pipes, and what is known of it.
//!
//! A thread that gives it a request registers the pipes with its own event loop, and keeps them registered: mostly, the
//! same thread gives it the next request.

use bytes::BytesMut;
use howdah_goridge::frame::Violation;
use howdah_protocol::messages::router::RoadRunnerWorker;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use tokio::net::unix::pipe::{Receiver, Sender};

/// A worker without a request, or with the request of its holder.
#[derive(Debug)]
pub struct Worker {
    /// The facts that all threads share.
    pub status: Arc<WorkerStatus>,
    pipes: Pipes,
    /// How many requests it has answered.
    pub requests: u32,
}

/// The supervisor's reports of a worker, and its name.
#[derive(Debug)]
pub struct WorkerStatus {
    /// Its name.
    pub name: RoadRunnerWorker,
    /// It is dead, or about to exit.
    pub is_gone: AtomicBool,
    /// It must exit when it has finished its request.
    pub must_retire: AtomicBool,
}

#[derive(Debug)]
enum Pipes {
    /// The pipe of the requests, and that of the answers, as they came.
    Unregistered(OwnedFd, OwnedFd),
    /// Registered with the event loop of this thread.
    Registered(ThreadId, Sender, Receiver),
    /// While they change, and after a failure.
    Closed,
}

/// The pipes of a worker that has a request.
pub struct RequestPipes<'w> {
    sender: &'w mut Sender,
    /// How many bytes were written, in sum.
    written: u64,
    receiver: &'w mut Receiver,
}

/// The most bytes that a pipe takes all at once (PIPE_BUF). PHP reads a header with one read.
const AT_ONCE: usize = 4096;
/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

// === impl Worker ===

impl Worker {
    /// A worker with these pipes: of its requests, and of its answers.
    pub fn new(name: RoadRunnerWorker, requests: OwnedFd, answers: OwnedFd) -> Worker {
        let status = WorkerStatus { name, is_gone: false.into(), must_retire: false.into() };
        Worker { status: Arc::new(status), pipes: Pipes::Unregistered(requests, answers), requests: 0 }
    }

    /// Its pipes, registered with the event loop of this thread.
    ///
    /// # Errors
    /// When the event loop cannot watch them.
    pub fn pipes(&mut self) -> io::Result<RequestPipes<'_>> {
        let here = thread::current().id();
        if !matches!(self.pipes, Pipes::Registered(thread, ..) if thread == here) {
            let (requests, answers) = match std::mem::replace(&mut self.pipes, Pipes::Closed) {
                Pipes::Unregistered(requests, answers) => (requests, answers),
                Pipes::Registered(_, sender, receiver) => {
                    (sender.into_nonblocking_fd()?, receiver.into_nonblocking_fd()?)
                }
                Pipes::Closed => return Err(io::Error::other("its pipes are closed")),
            };
            let (sender, receiver) = (Sender::from_owned_fd(requests)?, Receiver::from_owned_fd(answers)?);
            self.pipes = Pipes::Registered(here, sender, receiver);
        }
        match &mut self.pipes {
            Pipes::Registered(_, sender, receiver) => Ok(RequestPipes { sender, written: 0, receiver }),
            _ => Err(io::Error::other("its pipes are closed")),
        }
    }

    /// Whether it gets no more requests.
    pub fn is_gone(&self) -> bool {
        self.status.is_gone.load(Ordering::Relaxed)
    }
}

// === impl RequestPipes ===

impl RequestPipes<'_> {
    /// Whether the worker waits for a request, and has written nothing since its last answer.
    ///
    /// # Errors
    /// When it has written something. `Ok(false)` if its pipe is closed.
    pub fn is_idle(&mut self) -> Result<bool, Violation> {
        let mut byte = [0; 1];
        match self.receiver.try_read(&mut byte) {
            Ok(0) => Ok(false),
            Ok(_) => Err(Violation("it wrote to its standard output without a request".to_owned())),
            Err(error) => Ok(error.kind() == io::ErrorKind::WouldBlock),
        }
    }

    /// Writes the beginning of a frame, with its header, at once. Returns how many bytes were written.
    ///
    /// # Errors
    /// When the worker has closed its pipe: it has read nothing.
    pub async fn write_beginning(&mut self, frame: &[u8]) -> io::Result<usize> {
        let beginning = &frame[..frame.len().min(AT_ONCE)];
        loop {
            self.sender.writable().await?;
            match self.sender.try_write(beginning) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.inspect(|length| self.written += *length as u64),
            }
        }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When the worker has closed its pipe.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.sender.writable().await?;
            match self.sender.try_write(bytes) {
                Ok(length) => {
                    self.written += length as u64;
                    bytes = &bytes[length..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the worker has read nothing of the request: all that was written is still in the pipe.
    pub fn is_unread(&self) -> bool {
        rustix::io::ioctl_fionread(&*self.sender).is_ok_and(|unread| unread == self.written)
    }

    /// Writes a short frame if there is room. A worker that leaves its pipe full does not get it.
    pub fn try_write(&mut self, frame: &[u8]) {
        let _ = self.sender.try_write(frame);
    }

    /// Reads more bytes; 0 when the worker has closed its pipe.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        buffer.reserve(READ_BYTES);
        loop {
            self.receiver.readable().await?;
            match self.receiver.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}
