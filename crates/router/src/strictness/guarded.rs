//! The socket that hyper reads through: only what the guard lets on arrives.

use super::guard::{Guard, Judgement, Trouble};
use crate::connection::Clock;
use crate::socket::Watched;
use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A guarded socket.
///
/// A read that ends with the end of a head or in a body, and that is nearly every one, is judged where it lies.
pub struct Guarded {
    socket: Watched,
    clock: Rc<Clock>,
    guard: Guard,
    /// Bytes that did not go on when they were read.
    kept: BytesMut,
    /// So many of them may.
    released: usize,
    trouble: Option<Trouble>,
    /// In the place of a head that is refused, what is left of it.
    substitute: &'static [u8],
}

/// What hyper gets in the place of a head that is refused. The answer is not made for it.
const SUBSTITUTE: &[u8] = b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
/// The same, when the answer must not have a body.
const SUBSTITUTE_FOR_HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n";

// === impl Guarded ===

impl Guarded {
    /// Guards a connection from its first byte on.
    pub fn new(socket: Watched, clock: Rc<Clock>) -> Guarded {
        Guarded {
            socket,
            clock,
            guard: Guard::new(),
            kept: BytesMut::new(),
            released: 0,
            trouble: None,
            substitute: b"",
        }
    }

    /// Reads these bytes first, the next time: they have been let on before.
    pub fn unread(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            self.released += bytes.len();
            self.kept = bytes.into();
            self.kept.unsplit(kept);
        }
    }

    /// Ready when there is something to read, or the connection's end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_there = self.released > 0 || !self.substitute.is_empty();
        if is_there { Poll::Ready(()) } else { self.socket.poll_readable(context) }
    }

    /// Gives on what was kept and may go; `false` if there is nothing.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.released > 0 {
            let length = self.released.min(buffer.remaining());
            buffer.put_slice(&self.kept[..length]);
            self.kept.advance(length);
            self.released -= length;
            self.clock.read(length);
            if self.kept.is_empty() {
                // A connection that waits keeps no buffer.
                self.kept = BytesMut::new();
            }
            return true;
        }
        if !self.substitute.is_empty() {
            let (now, later) = self.substitute.split_at(self.substitute.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.substitute = later;
            return true;
        }
        false
    }

    /// Judges what was read into the buffer behind `before`, and leaves there what may go on.
    fn judge(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let new = &buffer.filled()[before..];
        let refused;
        if self.kept.is_empty() {
            let Judgement { pass, trouble } = self.guard.judge(new);
            if trouble.is_none() {
                self.kept.extend_from_slice(&new[pass..]);
            }
            refused = new[pass..].starts_with(b"HEAD ");
            self.trouble = trouble;
            buffer.set_filled(before + pass);
        } else {
            self.kept.extend_from_slice(new);
            buffer.set_filled(before);
            let Judgement { pass, trouble } = self.guard.judge(&self.kept);
            self.released = pass;
            refused = self.kept[pass..].starts_with(b"HEAD ");
            self.trouble = trouble;
            if trouble.is_some() {
                self.kept.truncate(pass);
            }
        }
        if let Some(Trouble::Refused(refusal, heads)) = self.trouble {
            self.substitute = if refused { SUBSTITUTE_FOR_HEAD } else { SUBSTITUTE };
            self.clock.refuse(heads, refusal);
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.give(buffer) {
                return Poll::Ready(Ok(()));
            }
            if self.trouble == Some(Trouble::Broken) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the chunks of a body are wrong")));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
            let is_end = buffer.filled().len() == before;
            if is_end || self.clock.is_tunnel() {
                return Poll::Ready(Ok(()));
            }
            if self.trouble.is_some() {
                // Nobody looks at what follows a refused head. It is read only lest it turn the answer into a reset.
                buffer.set_filled(before);
                continue;
            }
            self.judge(buffer, before);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
