//! A client's socket, as hyper reads and writes it: it notifies the connection's [`Clock`] of each read and write, and
//! writes interim responses before the bytes of hyper's.
//!
//! With TLS, the clock counts the bytes inside. Bytes that TLS could not send count as not written.

use crate::net::socket::Socket;
use crate::protocols::connection::turn::yield_turn;
use crate::protocols::http1::clock::Clock;
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that notifies its connection's clock.
pub struct Watched {
    socket: Socket,
    clock: Rc<Clock>,
    /// Bytes that were read before, and are read again first.
    read_before: Bytes,
}

// === impl Watched ===

impl Watched {
    /// A socket with its clock.
    pub fn new(socket: Socket, clock: Rc<Clock>) -> Watched {
        Watched { socket, clock, read_before: Bytes::new() }
    }

    /// Puts bytes back: they are read first, the next time.
    pub fn unread(&mut self, bytes: Bytes) {
        self.read_before = bytes;
    }

    /// Announces the end of the connection, as far as the client takes it at once. With TLS, the client can then
    /// distinguish this end from one that an attacker made.
    pub async fn announce_end(&mut self) {
        poll_fn(|context| {
            let _ = Pin::new(&mut self.socket).poll_shutdown(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Writes the queued interim responses.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Watched { socket, clock, .. } = self;
        while !clock.interim().is_empty() {
            let written = clock.interim().write(|bytes| match Pin::new(&mut *socket).poll_write(context, bytes) {
                Poll::Ready(Ok(0)) => (0, Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => (written, Poll::Ready(Ok(()))),
                Poll::Ready(Err(error)) => (0, Poll::Ready(Err(error))),
                Poll::Pending => (0, Poll::Pending),
            });
            clock.wrote(written.is_ready());
            ready!(written)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Makes the end of the connection a reset.
    pub fn reset_at_end(&self) {
        self.socket.reset_at_end();
    }

    /// Ready when there are bytes to read, or the connection has ended.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.read_before.is_empty() { self.socket.poll_readable(context) } else { Poll::Ready(()) }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read_before.is_empty() {
            let length = self.read_before.len().min(buffer.remaining());
            buffer.put_slice(&self.read_before[..length]);
            self.read_before.advance(length);
            self.clock.read(length);
            return Poll::Ready(Ok(()));
        }
        if self.clock.take_turn_end() {
            return yield_turn(context);
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(context, buffer);
        match &result {
            Poll::Ready(_) => self.clock.read(buffer.filled().len() - before),
            Poll::Pending => self.clock.read_blocked(),
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(context))?;
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.clock.wrote(result.is_ready());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(context))?;
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, buffers);
        self.clock.wrote(result.is_ready());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_interim(context))?;
        let result = Pin::new(&mut self.socket).poll_flush(context);
        self.clock.wrote(result.is_ready());
        if result.is_ready() {
            self.clock.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
