//! The body of every response: bytes of howdah's own, or an action's [`Source`]; plain or compressed.
//!
//! Dropping the body ends the request: its line is written to the access log, and the connection's clock is notified. A
//! source that is dropped before its end releases its worker or its upstream.

use crate::request::clock::RequestClock;
use crate::request::record::log_context::LogContext;
use crate::resources::counted_memory::CountedMemory;
use crate::response::compression::{CompressedBody, Compressible, Encoder};
use crate::response::log_entry::LogEntry;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::upgrade::Upgraded;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The body that an action of a route produces.
pub trait Source: Body<Data = Bytes, Error = io::Error> + Unpin {
    /// The whole body, if it is in memory.
    fn whole(&self) -> Option<&Bytes> {
        None
    }

    /// Whether the client is to receive what came before a pause. A script may pause on purpose, a disk does not.
    fn is_flushed_on_pause(&self) -> bool {
        true
    }

    /// The upstream's connection after a 101: the client's connection becomes a tunnel to it.
    fn take_tunnel(&mut self) -> Option<Upgraded> {
        None
    }
}

/// A response's body, as hyper takes it.
pub struct ResponseBody<S> {
    content: Content<S>,
    log: Option<Box<LogEntry>>,
    clock: Option<RequestClock>,
    /// The request, for log lines.
    context: Option<Rc<LogContext>>,
}

enum Content<S> {
    Bytes(Bytes),
    Source(S),
    Compressed(Box<CompressedBody<Content<S>>>),
}

// === impl ResponseBody ===

impl<S> ResponseBody<S> {
    /// A body in memory.
    pub fn bytes(bytes: Bytes) -> ResponseBody<S> {
        ResponseBody::of(Content::Bytes(bytes))
    }

    /// An action's body.
    pub fn source(source: S) -> ResponseBody<S> {
        ResponseBody::of(Content::Source(source))
    }

    fn of(content: Content<S>) -> ResponseBody<S> {
        ResponseBody { content, log: None, clock: None, context: None }
    }
}

impl<S: Source> ResponseBody<S> {
    /// Notifies the connection's clock when the body has ended, and writes the entry to the access log.
    pub fn ends_request(
        mut self,
        clock: RequestClock,
        entry: Option<Box<LogEntry>>,
        context: Option<Rc<LogContext>>,
    ) -> ResponseBody<S> {
        if let Content::Source(source) = &mut self.content
            && let Some(upstream) = source.take_tunnel()
        {
            clock.keep_tunnel(upstream);
        }
        self.clock = Some(clock);
        self.log = entry;
        self.context = context;
        self
    }
}

impl<S: Source> Compressible for ResponseBody<S> {
    fn of_bytes(bytes: Bytes) -> ResponseBody<S> {
        ResponseBody::bytes(bytes)
    }

    fn whole(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            Content::Source(source) => source.whole(),
            Content::Compressed(_) => None,
        }
    }

    fn compressed_by(mut self, encoder: Encoder, memory: CountedMemory) -> ResponseBody<S> {
        let content = std::mem::replace(&mut self.content, Content::Bytes(Bytes::new()));
        let flushes = match &content {
            Content::Source(source) => source.is_flushed_on_pause(),
            _ => true,
        };
        self.content = Content::Compressed(Box::new(CompressedBody::new(content, encoder, memory, flushes)));
        self
    }
}

impl<S: Source> Body for ResponseBody<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = match self.context.clone() {
            Some(context) => context.scope(|| Pin::new(&mut self.content).poll_frame(task)),
            None => Pin::new(&mut self.content).poll_frame(task),
        };
        let frame = ready!(frame);
        if let (Some(entry), Some(Ok(data))) = (&mut self.log, frame.as_ref().map(|f| f.as_ref().map(Frame::data_ref)))
        {
            entry.body_bytes += data.map_or(0, Bytes::len) as u64;
        }
        if let (Some(context), Some(Ok(frame))) = (&self.context, &frame) {
            context.numbers.add_body_bytes(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

impl<S> Drop for ResponseBody<S> {
    fn drop(&mut self) {
        if let Some(entry) = self.log.take() {
            entry.write();
        }
        self.context.iter().for_each(|context| context.end());
        if let Some(clock) = self.clock.take() {
            clock.request_ended();
        }
    }
}

// === impl Content ===

impl<S: Source> Body for Content<S> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Content::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Source(source) => Pin::new(source).poll_frame(context),
            Content::Compressed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::Source(source) => source.is_end_stream(),
            Content::Compressed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Source(source) => source.size_hint(),
            Content::Compressed(_) => SizeHint::default(),
        }
    }
}
