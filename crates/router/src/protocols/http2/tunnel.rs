//! A stream that has changed its protocol, to a WebSocket (RFC 8441): howdah copies bytes both ways, and does not interpret
//! them.
//!
//! The same ends as with HTTP/1: either side ends the tunnel, no byte goes either way for long, or the connection drains.
//! When one side has ended, the other one may have left, or wait without end: without bytes, the tunnel ends soon.

use crate::protocols::connection::limits::{TUNNEL_GRACE, TUNNEL_IDLE_TIMEOUT};
use crate::protocols::connection::priority::PriorityField;
use crate::protocols::connection::tunnel_server::TunnelServer;
use crate::protocols::http2::clock::MultiplexedClock;
use crate::protocols::http2::send_room::SendTurn;
use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

/// Both directions of a stream, as bytes.
struct StreamBytes<'c> {
    received: RecvStream,
    /// Bytes that came and were not read.
    unread: Bytes,
    sending: SendStream<Bytes>,
    /// When bytes went either way.
    moved_at: &'c Cell<Instant>,
    /// Whether a side has ended.
    has_ended: &'c Cell<bool>,
    connection: &'c MultiplexedClock,
    turn: SendTurn<'c>,
}

/// How often the tunnel's time is checked.
const CHECK: Duration = Duration::from_secs(1);
/// The most bytes that are passed on at once: streams take turns in the connection's window.
const PORTION_BYTES: usize = 16 * 1024;

/// Copies until the tunnel ends.
pub async fn run(connection: &MultiplexedClock, received: RecvStream, sending: SendStream<Bytes>, upstream: Upgraded) {
    let (moved_at, has_ended) = (Cell::new(Instant::now()), Cell::new(false));
    let turn = connection.send_turn(sending.stream_id().as_u32(), PriorityField::default(), PriorityField::default());
    let mut client = StreamBytes {
        received,
        unread: Bytes::new(),
        sending,
        moved_at: &moved_at,
        has_ended: &has_ended,
        connection,
        turn,
    };
    let mut upstream = TunnelServer::new(TokioIo::new(upstream), || {
        moved_at.set(Instant::now());
        has_ended.set(true);
    });
    tokio::select! {
        result = copy_bidirectional(&mut client, &mut upstream) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a tunnel ended early");
            }
        }
        () = until_overdue(connection, &moved_at, &has_ended) => tracing::debug!("a tunnel was ended"),
    }
}

async fn until_overdue(connection: &MultiplexedClock, moved_at: &Cell<Instant>, has_ended: &Cell<bool>) {
    let is_overdue = || {
        let limit = if has_ended.get() { TUNNEL_GRACE } else { TUNNEL_IDLE_TIMEOUT };
        moved_at.get().elapsed() > limit
            || connection.ending_since().is_some_and(|since| since.elapsed() > TUNNEL_GRACE)
    };
    while !is_overdue() {
        tokio::time::sleep(CHECK).await;
    }
}

// === impl StreamBytes ===

impl AsyncRead for StreamBytes<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(self.received.poll_data(context)) {
                Some(data) => self.unread = data.map_err(io::Error::other)?,
                None => {
                    self.has_ended.set(true);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        self.moved_at.set(Instant::now());
        let released = self.received.flow_control().release_capacity(length);
        Poll::Ready(released.map_err(io::Error::other))
    }
}

impl AsyncWrite for StreamBytes<'_> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.turn.poll(context));
        self.sending.reserve_capacity(bytes.len().min(PORTION_BYTES));
        let mut capacity = self.sending.capacity();
        while capacity == 0 {
            capacity = match ready!(self.sending.poll_capacity(context)) {
                Some(capacity) => capacity.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let length = capacity.min(bytes.len());
        let sent = self.sending.send_data(Bytes::copy_from_slice(&bytes[..length]), false);
        let connection = self.connection;
        connection.count_sent(&mut self.turn, length);
        self.moved_at.set(Instant::now());
        Poll::Ready(sent.map(|()| length).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A client that has left needs no end.
        let _ = self.sending.send_data(Bytes::new(), true);
        Poll::Ready(Ok(()))
    }
}
