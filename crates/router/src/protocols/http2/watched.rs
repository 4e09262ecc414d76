//! A client's socket, as h2 reads and writes it: it notifies the connection's clock, and counts the client's frames.
//!
//! h2 writes and flushes each frame of DATA by itself. All that it writes in one turn is collected, and is sent together after
//! its turn ([`Watched::poll_send`]), or when no more can be collected.

use crate::net::collecting_socket::{CollectingSocket, Sending};
use crate::net::socket::Socket;
use crate::protocols::connection::turn::yield_turn;
use crate::protocols::http2::clock::{Ending, MultiplexedClock};
use crate::protocols::http2::frames::Frames;
use crate::protocols::http2::sent_frames::SentFrames;
use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that notifies its connection's clock. Clones are the same socket.
#[derive(Clone)]
pub struct Watched(Rc<RefCell<WatchedSocket>>);

struct WatchedSocket {
    socket: CollectingSocket,
    clock: Rc<MultiplexedClock>,
    frames: Frames,
    sent_frames: SentFrames,
    /// Bytes that were read before, and are read again first.
    read_before: Bytes,
    /// Whether the client has sent too many frames without a use, or too large trailers. Nothing more is read then.
    is_flooded: bool,
}

// === impl Watched ===

impl Watched {
    /// A socket with its clock. These bytes of the client were read already.
    pub fn new(socket: Socket, read_before: Bytes, clock: Rc<MultiplexedClock>) -> Watched {
        Watched(Rc::new(RefCell::new(WatchedSocket {
            socket: CollectingSocket::new(socket),
            clock,
            frames: Frames::new(),
            sent_frames: SentFrames::default(),
            read_before,
            is_flooded: false,
        })))
    }

    /// Sends what h2 has written. To be called whenever h2 has had its turn.
    ///
    /// # Errors
    /// The socket's: the connection has ended.
    pub fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(context)
    }
}

// === impl WatchedSocket ===

impl WatchedSocket {
    /// Collects bytes of a write. Ready with their number, once there is room for some.
    fn poll_collect(&mut self, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let mut collected = self.socket.collect(pieces)?;
        while collected == 0 {
            ready!(self.poll_send(context))?;
            collected = self.socket.collect(pieces)?;
        }
        self.clock.wrote_data(self.sent_frames.wrote_pieces(pieces, collected));
        self.frames.wrote(collected);
        Poll::Ready(Ok(collected))
    }

    /// Ready when everything has gone out.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket.poll_send(context)? {
            Sending::Done => {
                self.clock.flushed();
                Poll::Ready(Ok(()))
            }
            Sending::Full { has_moved } => {
                self.clock.blocked(has_moved);
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.borrow_mut();
        if this.is_flooded {
            return Poll::Pending;
        }
        if this.frames.take_turn_end() {
            return yield_turn(context);
        }
        let before = buffer.filled().len();
        if this.read_before.is_empty() {
            ready!(this.socket.poll_read(context, buffer))?;
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
        if !this.frames.take_trailers().all(|(stream, bytes)| this.clock.trailers_came(stream, bytes)) {
            this.is_flooded = true;
            this.clock.end(Ending::Abrupt("the trailers of its requests take too much memory"));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_collect(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_collect(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: [`Watched::poll_send`] is called after h2's turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.borrow_mut();
        ready!(this.poll_send(context))?;
        this.socket.poll_shutdown(context)
    }
}
