//! quinn's connection and streams, as h3 reads and writes them.
//!
//! In place of h3-quinn, which hides quinn's streams: here each stream notices that its client cancels it
//! ([`Bidirectional::cancelled`]), and h3 gets only frames within limits ([`frames`](crate::protocols::http3::frames)).

use crate::protocols::connection::heads::head_memory::HeldHead;
use crate::protocols::http3::clock::{Ending, QuicClock};
use crate::protocols::http3::frames::{FrameError, Frames};
use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
    StreamId, WriteBuf,
};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A connection.
pub struct Transport {
    connection: quinn::Connection,
    clock: Rc<QuicClock>,
    accepting: Option<Pending<(quinn::SendStream, quinn::RecvStream)>>,
    accepting_one_direction: Option<Pending<quinn::RecvStream>>,
    opening: Option<Pending<quinn::SendStream>>,
}

/// The way to open streams. A server opens none later than h3 does itself.
pub struct Opener(quinn::Connection);

/// A stream of a request.
pub struct Bidirectional {
    send: Sending,
    receive: Receiving,
}

/// The server's direction of a stream. Dropped before its end, it is reset.
pub struct Sending {
    stream: quinn::SendStream,
    /// Bytes that h3 has given, and quinn has not taken. There is more than one only if a wait for it was given up.
    unsent: Vec<WriteBuf<Bytes>>,
    wrote: bool,
    has_ended: bool,
    /// Whether a response is made for it. If not, h3 may have refused the head with a response of its own.
    is_answered: Rc<Cell<bool>>,
    /// The rank among the streams, and the one that quinn knows.
    rank: Rc<Cell<i32>>,
    known_rank: i32,
}

/// The client's direction of a stream.
pub struct Receiving {
    stream: quinn::RecvStream,
    frames: Frames,
    clock: Rc<QuicClock>,
    /// The memory of a head that is incomplete.
    open_head: Option<HeldHead>,
    has_ended: bool,
}

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>>>>;

/// The most bytes that are taken from quinn at once.
const CHUNK_BYTES: usize = 64 * 1024;

// === impl Transport ===

impl Transport {
    /// The streams of this connection.
    pub fn new(connection: quinn::Connection, clock: Rc<QuicClock>) -> Transport {
        Transport { connection, clock, accepting: None, accepting_one_direction: None, opening: None }
    }

    fn receiving(&self, stream: quinn::RecvStream, frames: Frames) -> Receiving {
        Receiving { stream, frames, clock: Rc::clone(&self.clock), open_head: None, has_ended: false }
    }
}

impl Connection<Bytes> for Transport {
    type RecvStream = Receiving;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Receiving, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let stream = ready!(poll_pending(&mut self.accepting_one_direction, context, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        }));
        Poll::Ready(stream.map(|stream| self.receiving(stream, Frames::of_one_direction())).map_err(of_connection))
    }

    fn poll_accept_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<Bidirectional, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let streams = ready!(poll_pending(&mut self.accepting, context, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        }));
        let (send, receive) = streams.map_err(of_connection)?;
        let receive = self.receiving(receive, Frames::of_request());
        Poll::Ready(Ok(Bidirectional { send: Sending::new(send, 0), receive }))
    }

    fn opener(&self) -> Opener {
        Opener(self.connection.clone())
    }
}

impl OpenStreams<Bytes> for Transport {
    type BidiStream = Bidirectional;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Bidirectional, StreamErrorIncoming>> {
        Poll::Ready(Err(not_of_a_server()))
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        let connection = &self.connection;
        let stream = ready!(poll_pending(&mut self.opening, context, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        }));
        // The connection's own streams go first.
        Poll::Ready(stream.map(|stream| Sending::new(stream, i32::MAX)).map_err(of_stream))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.connection, code, reason);
    }
}

impl OpenStreams<Bytes> for Opener {
    type BidiStream = Bidirectional;
    type SendStream = Sending;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<Bidirectional, StreamErrorIncoming>> {
        Poll::Ready(Err(not_of_a_server()))
    }

    fn poll_open_send(&mut self, _: &mut Context<'_>) -> Poll<Result<Sending, StreamErrorIncoming>> {
        Poll::Ready(Err(not_of_a_server()))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        close(&self.0, code, reason);
    }
}

/// Closes a connection with a code of HTTP/3.
pub fn close(connection: &quinn::Connection, code: Code, reason: &[u8]) {
    connection.close(to_integer(code.value()), reason);
}

fn not_of_a_server() -> StreamErrorIncoming {
    let connection_error = ConnectionErrorIncoming::InternalError("a server opens no such stream".to_owned());
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

/// Polls what was begun before, or begins it.
fn poll_pending<T>(
    pending: &mut Option<Pending<T>>,
    context: &mut Context<'_>,
    begin: impl FnOnce() -> Pending<T>,
) -> Poll<Result<T, ConnectionError>> {
    let result = ready!(pending.get_or_insert_with(begin).as_mut().poll(context));
    *pending = None;
    Poll::Ready(result)
}

// === impl Bidirectional ===

impl Bidirectional {
    /// Ready when the client has cancelled the response, or has confirmed all of it, or has left.
    pub fn cancelled(&self) -> impl Future<Output = ()> + 'static {
        let stopped = self.send.stream.stopped();
        async move {
            let _ = stopped.await;
        }
    }

    /// Set when a response is made for the stream.
    pub fn is_answered(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.send.is_answered)
    }

    /// Whether it came before the handshake was complete.
    pub fn is_early(&self) -> bool {
        self.receive.stream.is_0rtt()
    }

    /// Its rank among the streams: bytes of a greater one go first.
    pub fn rank(&self) -> Rc<Cell<i32>> {
        Rc::clone(&self.send.rank)
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.send.stream.id().into()
    }
}

impl BidiStream<Bytes> for Bidirectional {
    type SendStream = Sending;
    type RecvStream = Receiving;

    fn split(self) -> (Sending, Receiving) {
        (self.send, self.receive)
    }
}

impl SendStream<Bytes> for Bidirectional {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl RecvStream for Bidirectional {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receive.poll_data(context)
    }

    fn stop_sending(&mut self, code: u64) {
        self.receive.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}

// === impl Sending ===

impl Sending {
    fn new(stream: quinn::SendStream, rank: i32) -> Sending {
        Sending {
            stream,
            unsent: Vec::new(),
            wrote: false,
            has_ended: false,
            is_answered: Rc::default(),
            rank: Rc::new(Cell::new(rank)),
            known_rank: 0,
        }
    }
}

impl SendStream<Bytes> for Sending {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if self.known_rank != self.rank.get() {
            self.known_rank = self.rank.get();
            // It fails only for a stream that has ended.
            let _ = self.stream.set_priority(self.known_rank);
        }
        while let Some(first) = self.unsent.first_mut() {
            while first.has_remaining() {
                let written =
                    ready!(Pin::new(&mut self.stream).poll_write(context, first.chunk())).map_err(of_write)?;
                first.advance(written);
                self.wrote = true;
            }
            self.unsent.remove(0);
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.unsent.push(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(context))?;
        self.has_ended = true;
        Poll::Ready(self.stream.finish().map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        self.has_ended = true;
        // It fails only for a stream that has ended.
        let _ = self.stream.reset(to_integer(code));
    }

    fn send_id(&self) -> StreamId {
        to_id(self.stream.id())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // quinn would end the stream, as if the response were whole.
        let is_refusal_of_h3 = self.wrote && !self.is_answered.get();
        if !self.has_ended && !is_refusal_of_h3 {
            self.reset(Code::H3_INTERNAL_ERROR.value());
        }
    }
}

// === impl Receiving ===

impl Receiving {
    /// Counts the bytes of an incomplete head. Returns whether there is room for them.
    fn hold_open_head(&mut self) -> bool {
        match (self.frames.open_head_bytes(), &mut self.open_head) {
            (0, held) => *held = None,
            (bytes, Some(held)) => return held.grow_to(bytes),
            (bytes, None) => self.open_head = self.clock.hold_bytes(bytes),
        }
        self.open_head.is_some() || self.frames.open_head_bytes() == 0
    }
}

impl RecvStream for Receiving {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        loop {
            if let Some(bytes) = self.frames.next() {
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.has_ended {
                return Poll::Ready(Ok(None));
            }
            // The waker stays with the connection when this future is dropped.
            let chunk = ready!(pin!(self.stream.read_chunk(CHUNK_BYTES, true)).poll(context));
            match chunk.map_err(of_read)? {
                None => {
                    self.has_ended = true;
                    if self.frames.end().is_err() {
                        let error_code = Code::H3_FRAME_ERROR.value();
                        return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
                    }
                }
                Some(chunk) => {
                    let read = self.frames.read(chunk.bytes);
                    self.clock.charge(self.frames.take_cost());
                    self.frames.take_priorities().for_each(|update| self.clock.send_order().update(update));
                    if self.clock.ends_abruptly() {
                        // Nothing more is read. The end of the connection wakes those that wait.
                        return Poll::Pending;
                    }
                    match read {
                        Ok(()) if self.hold_open_head() => {}
                        // h3 takes it for a client that gave up: the request is reset.
                        Ok(()) => {
                            self.clock.note_refusal();
                            let error_code = Code::H3_REQUEST_REJECTED.value();
                            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
                        }
                        Err(FrameError::HeadTooLarge) => {
                            let error_code = Code::H3_EXCESSIVE_LOAD.value();
                            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
                        }
                        Err(FrameError::TooLong | FrameError::Incomplete) => {
                            self.clock.end(Ending::Abrupt("a frame is too long"));
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }

    fn stop_sending(&mut self, code: u64) {
        // It fails only for a stream that has ended.
        let _ = self.stream.stop(to_integer(code));
    }

    fn recv_id(&self) -> StreamId {
        to_id(self.stream.id())
    }
}

// === Errors and numbers ===

fn of_connection(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn of_stream(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: of_connection(error) }
}

fn of_read(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => of_stream(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn of_write(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => of_stream(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn to_integer(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn to_id(id: quinn::StreamId) -> StreamId {
    // Both have the same numbers.
    StreamId::try_from(u64::from(id)).expect("QUIC's stream ids have 62 bits")
}
