//! A socket to an upstream. It records what hyper does not report: the time of the last write, and whether a response
//! has begun. It ends with an error if a line of a response's head ends with LF alone, or interim
//! responses have no end.

use super::line_ends::LineEnds;
use crate::net::either_stream::{either_stream, with_either};
use crate::net::transport::Transport;
use howdah_protocol::sockets::tcp_peer::check_listening_user;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// The bytes of a connection to an upstream.
pub enum UpstreamTransport {
    /// Without TLS.
    Plain(Transport),
    /// With TLS, after the handshake.
    Tls(Box<TlsStream<Transport>>),
}

/// A connected socket, and its progress.
pub struct UpstreamSocket {
    stream: UpstreamTransport,
    progress: Arc<SocketProgress>,
    line_ends: LineEnds,
}

/// The progress on a socket. hyper requires a socket that can be sent to other threads, for a change of the protocol;
/// hence the atomics, although only one thread uses them.
#[derive(Debug)]
pub struct SocketProgress {
    since: Instant,
    wrote_after_milliseconds: AtomicU64,
    has_read: AtomicBool,
}

either_stream!(UpstreamTransport: Plain, Tls);

// === impl SocketProgress ===

impl SocketProgress {
    fn new() -> SocketProgress {
        SocketProgress {
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

// === impl UpstreamSocket ===

impl UpstreamSocket {
    /// Checks that this user listens at the other end.
    ///
    /// # Errors
    /// With the user that listens there.
    pub fn check_listening_user(&self, expected: u32) -> io::Result<()> {
        match &self.stream {
            UpstreamTransport::Plain(Transport::Unix(socket)) => match socket.peer_cred()?.uid() {
                user if user == expected => Ok(()),
                user => Err(io::Error::other(format!("user id {user} listens there, and not {expected}"))),
            },
            UpstreamTransport::Plain(Transport::Tcp(socket)) => {
                check_listening_user(socket.peer_addr()?, socket.local_addr()?, expected)
            }
            UpstreamTransport::Tls(_) => Ok(()),
        }
    }

    /// Wraps a connected socket.
    pub fn new(stream: UpstreamTransport) -> UpstreamSocket {
        UpstreamSocket { stream, progress: Arc::new(SocketProgress::new()), line_ends: LineEnds::new() }
    }

    /// Its progress, readable while hyper owns the stream.
    pub fn progress(&self) -> Arc<SocketProgress> {
        Arc::clone(&self.progress)
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.progress.wrote();
        }
        written
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            if !self.progress.has_read.swap(true, Ordering::Relaxed) {
                self.line_ends = LineEnds::new();
            }
            if let Err(problem) = self.line_ends.pass(new) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
            }
        }
        result
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
