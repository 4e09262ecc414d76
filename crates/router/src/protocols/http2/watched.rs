//! A client's socket, as h2 reads and writes it: it notifies the connection's clock, and counts the client's frames.

use crate::net::socket::Socket;
use crate::protocols::http2::clock::{Ending, MultiplexedClock};
use crate::protocols::http2::frames::Frames;
use crate::protocols::http2::sent_frames::SentFrames;
use bytes::{Buf, Bytes};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

/// A socket that notifies its connection's clock.
pub struct Watched {
    socket: Socket,
    clock: Rc<MultiplexedClock>,
    frames: Frames,
    sent_frames: SentFrames,
    /// Bytes that were read before, and are read again first.
    read_before: Bytes,
    /// Whether the client has sent too many frames without a use. Nothing more is read then.
    is_flooded: bool,
}

// === impl Watched ===

impl Watched {
    /// A socket with its clock. These bytes of the client were read already.
    pub fn new(socket: Socket, read_before: Bytes, clock: Rc<MultiplexedClock>) -> Watched {
        Watched {
            socket,
            clock,
            frames: Frames::new(),
            sent_frames: SentFrames::default(),
            read_before,
            is_flooded: false,
        }
    }

    fn wrote(&mut self, result: &Poll<io::Result<usize>>) {
        self.clock.wrote(result.is_ready());
        if let Poll::Ready(Ok(bytes)) = result {
            self.frames.wrote(*bytes);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_flooded {
            return Poll::Pending;
        }
        if this.frames.take_turn_end() {
            return yield_turn(context);
        }
        let before = buffer.filled().len();
        if this.read_before.is_empty() {
            ready!(Pin::new(&mut this.socket).poll_read(context, buffer))?;
        } else {
            let length = this.read_before.len().min(buffer.remaining());
            buffer.put_slice(&this.read_before[..length]);
            this.read_before.advance(length);
        }
        this.is_flooded = !this.frames.read(&buffer.filled()[before..]);
        this.clock.head_is_open(this.frames.has_open_head());
        this.clock.window_grew(this.frames.take_window());
        this.frames.take_priorities().for_each(|update| this.clock.update_priority(update));
        if this.is_flooded {
            this.clock.end(Ending::Abrupt("too many frames without a use, or too many requests that were reset"));
        }
        Poll::Ready(Ok(()))
    }
}

/// The heads of a client may cost much more than their bytes do: other connections have their turn in between.
fn yield_turn(context: &mut Context<'_>) -> Poll<io::Result<()>> {
    // It wakes the task when the event loop has looked at all sockets.
    pin!(yield_now()).poll(context).map(Ok)
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = result {
            let data = self.sent_frames.wrote(&bytes[..written]);
            self.clock.wrote_data(data);
        }
        self.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, buffers);
        if let Poll::Ready(Ok(written)) = result {
            let data = self.sent_frames.wrote_pieces(buffers, written);
            self.clock.wrote_data(data);
        }
        self.wrote(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(context);
        match result.is_ready() {
            true => self.clock.flushed(),
            false => self.clock.wrote(false),
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
