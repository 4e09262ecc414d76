//! A socket to an upstream. It records what hyper does not report: the time of the last write, and whether a response
//! has begun.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

/// A connected socket.
pub struct Stream {
    socket: Socket,
    progress: Arc<Progress>,
}

/// The progress on a socket. hyper requires a socket that can be sent to other threads, for a change of the protocol;
/// hence the atomics, although only one thread uses them.
#[derive(Debug)]
pub struct Progress {
    since: Instant,
    wrote_after_milliseconds: AtomicU64,
    has_read: AtomicBool,
}

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

// === impl Progress ===

impl Progress {
    fn new() -> Progress {
        Progress {
            since: Instant::now(),
            wrote_after_milliseconds: AtomicU64::default(),
            has_read: AtomicBool::default(),
        }
    }

    /// Starts again for a new request.
    pub fn restart(&self) {
        self.has_read.store(false, Ordering::Relaxed);
        self.wrote();
    }

    /// Whether the upstream has sent a byte since then.
    pub fn has_read(&self) -> bool {
        self.has_read.load(Ordering::Relaxed)
    }

    /// When the upstream last took bytes of the request.
    pub fn last_write(&self) -> Instant {
        self.since + Duration::from_millis(self.wrote_after_milliseconds.load(Ordering::Relaxed))
    }

    fn wrote(&self) {
        let milliseconds = self.since.elapsed().as_millis() as u64;
        self.wrote_after_milliseconds.store(milliseconds, Ordering::Relaxed);
    }
}

// === impl Stream ===

impl Stream {
    /// Wraps a connected socket.
    pub fn new(socket: Socket) -> Stream {
        Stream { socket, progress: Arc::new(Progress::new()) }
    }

    /// Its progress, readable while hyper owns the stream.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.progress.wrote();
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.progress.has_read.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
        };
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
