//! A worker of RoadRunner, on the side of the router: its pipes or its connection, and what is known of it.
//!
//! A thread that gives it a request watches its answers, and keeps them registered with its event loop: mostly, the same
//! thread gives it the next request. Its requests are written without the event loop, which watches that direction only if
//! it is full.

use crate::net::watch::watch_for;
use bytes::BytesMut;
use howdah_goridge::frame::Violation;
use howdah_protocol::messages::router::RoadRunnerWorker;
use rustix::io::{Errno, read, write, writev};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// A worker without a request, or with the request of its holder.
#[derive(Debug)]
pub struct Worker {
    /// The facts that all threads share.
    pub status: Arc<WorkerStatus>,
    /// The pipe of its requests; `None` if the answers come over a connection, which gets the requests, too.
    requests_pipe: Option<OwnedFd>,
    answers: Answers,
    /// How many requests it has answered.
    pub requests: u32,
    /// Since when it waits for a request.
    pub idle_since: Instant,
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

/// The pipe of the answers, or the connection.
#[derive(Debug)]
enum Answers {
    /// As it came.
    Unregistered(OwnedFd),
    /// Registered with the event loop of this thread.
    Registered(ThreadId, AsyncFd<OwnedFd>),
    /// While it changes, and after a failure.
    Closed,
}

/// The pipes or the connection of a worker that has a request.
pub struct RequestPipes<'w> {
    requests: &'w OwnedFd,
    /// Whether `requests` is a pipe.
    is_pipe: bool,
    /// The same, registered, since it was full.
    writable: Option<AsyncFd<OwnedFd>>,
    /// How many bytes were written, in sum.
    written: u64,
    answers: &'w AsyncFd<OwnedFd>,
}

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// Gets the bytes of a read. Answers are mostly short: this saves a buffer of this size for each.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

// === impl Worker ===

impl Worker {
    /// A worker with these pipes: of its requests, and of its answers; or with a connection for both. They do not block.
    pub fn new(name: RoadRunnerWorker, requests: Option<OwnedFd>, answers: OwnedFd) -> Worker {
        let status = WorkerStatus { name, is_gone: false.into(), must_retire: false.into() };
        let answers = Answers::Unregistered(answers);
        Worker { status: Arc::new(status), requests_pipe: requests, answers, requests: 0, idle_since: Instant::now() }
    }

    /// Its pipes. The event loop of this thread watches its answers.
    ///
    /// # Errors
    /// When the event loop cannot watch them.
    pub fn pipes(&mut self) -> io::Result<RequestPipes<'_>> {
        let here = thread::current().id();
        if self.thread() != Some(here) {
            let answers = match std::mem::replace(&mut self.answers, Answers::Closed) {
                Answers::Unregistered(answers) => answers,
                Answers::Registered(_, answers) => answers.into_inner(),
                Answers::Closed => return Err(io::Error::other("its pipes are closed")),
            };
            self.answers = Answers::Registered(here, watch_for(answers, Interest::READABLE)?);
        }
        match &self.answers {
            Answers::Registered(_, answers) => {
                let is_pipe = self.requests_pipe.is_some();
                let requests = self.requests_pipe.as_ref().unwrap_or_else(|| answers.get_ref());
                Ok(RequestPipes { requests, is_pipe, writable: None, written: 0, answers })
            }
            _ => Err(io::Error::other("its pipes are closed")),
        }
    }

    /// The thread whose event loop watches its answers.
    pub fn thread(&self) -> Option<ThreadId> {
        match &self.answers {
            Answers::Registered(thread, _) => Some(*thread),
            _ => None,
        }
    }

    /// Whether it must exit, and gets no more requests.
    pub fn must_retire(&self) -> bool {
        self.status.must_retire.load(Ordering::Relaxed)
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
        match read(self.answers.get_ref(), &mut [0; 1]) {
            Ok(0) => Ok(false),
            Ok(_) => Err(Violation("it wrote without a request".to_owned())),
            Err(Errno::AGAIN) => {
                // The pipe is empty: what the event loop knew of it is of the last answer.
                let empty = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = self.answers.try_io(Interest::READABLE, empty);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    /// Writes the beginning of a frame, with its header, at once: PHP reads a header with one read. Returns how many bytes
    /// of both parts were written.
    ///
    /// # Errors
    /// When the worker has closed its pipe: it has read nothing.
    pub async fn write_beginning(&mut self, head: &[u8], body: &[u8]) -> io::Result<usize> {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let parts = if body.is_empty() { &parts[..1] } else { &parts };
        loop {
            match writev(self.requests, parts) {
                Err(Errno::AGAIN) => self.writable().await?,
                result => return self.count(result),
            }
        }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When the worker has closed its pipe.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match write(self.requests, bytes) {
                Err(Errno::AGAIN) => self.writable().await?,
                result => bytes = &bytes[self.count(result)?..],
            }
        }
        Ok(())
    }

    fn count(&mut self, written: rustix::io::Result<usize>) -> io::Result<usize> {
        let length = written?;
        self.written += length as u64;
        Ok(length)
    }

    /// Waits until the pipe, which was full, has room.
    async fn writable(&mut self) -> io::Result<()> {
        let pipe = match &self.writable {
            Some(pipe) => pipe,
            None => self.writable.insert(watch_for(self.requests.try_clone()?, Interest::WRITABLE)?),
        };
        let mut full = pipe.writable().await?;
        // The next write shows whether it still has room.
        full.clear_ready();
        Ok(())
    }

    /// Whether the worker has certainly read nothing of the request: all that was written is still in the pipe. Of a
    /// connection, that is not known.
    pub fn is_unread(&self) -> bool {
        self.is_pipe && rustix::io::ioctl_fionread(self.requests).is_ok_and(|unread| unread == self.written)
    }

    /// Writes a short frame if there is room. A worker that leaves its pipe full does not get it.
    pub fn try_write(&mut self, frame: &[u8]) {
        let _ = write(self.requests, frame);
    }

    /// Reads more bytes; 0 when the worker has closed its pipe.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let read = |pipe: &OwnedFd| {
            READ_BUFFER.with_borrow_mut(|bytes| {
                let length = read(pipe, &mut bytes[..])?;
                buffer.extend_from_slice(&bytes[..length]);
                Ok(length)
            })
        };
        self.answers.async_io(Interest::READABLE, read).await
    }
}
