//! The body of every response: one of ours, a file's, what PHP writes, or what an upstream sends; as it is, or compressed.

use crate::http1::connection::Clock;
use crate::php::port::Port;
use crate::php::running::Running;
use crate::proxy::UpstreamBody;
use crate::response::compression::{CompressedBody, Encoder};
use crate::response::log_line::Entry;
use crate::static_files::FileBody;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::upgrade::Upgraded;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A response's body. Dropping it ends the request: it is logged, and PHP learns if the client left early.
pub struct ResponseBody {
    source: Source,
    log: Option<Box<Entry>>,
    clock: Option<Rc<Clock>>,
}

enum Source {
    Bytes(Bytes),
    File(FileBody),
    Php(PhpBody),
    Upstream(UpstreamBody),
    Compressed(Box<CompressedBody<Source>>),
    /// None at all: the connection goes on with another protocol.
    Tunnel(Option<Upgraded>),
}

/// What PHP writes, as it comes.
pub struct PhpBody {
    /// What came with the head.
    first: Bytes,
    running: Rc<Running>,
    port: Rc<Port>,
    ended: bool,
}

// === impl ResponseBody ===

impl ResponseBody {
    /// A body that is all there.
    pub fn bytes(bytes: Bytes) -> ResponseBody {
        ResponseBody { source: Source::Bytes(bytes), log: None, clock: None }
    }

    /// A file's.
    pub fn file(file: FileBody) -> ResponseBody {
        ResponseBody { source: Source::File(file), log: None, clock: None }
    }

    /// A response of PHP that goes on.
    pub fn php(first: Bytes, running: Rc<Running>, port: Rc<Port>) -> ResponseBody {
        ResponseBody { source: Source::Php(PhpBody { first, running, port, ended: false }), log: None, clock: None }
    }

    /// What an upstream sends.
    pub fn upstream(body: UpstreamBody) -> ResponseBody {
        ResponseBody { source: Source::Upstream(body), log: None, clock: None }
    }

    /// After this response (a 101) the connection is connected through to an upstream's.
    pub fn tunnel(upstream: Upgraded) -> ResponseBody {
        ResponseBody { source: Source::Tunnel(Some(upstream)), log: None, clock: None }
    }

    /// All of it, if it is in memory.
    pub fn whole(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Bytes(bytes) => Some(bytes),
            Source::File(file) => file.whole(),
            _ => None,
        }
    }

    /// The same, compressed as it is sent.
    pub fn compressed_by(mut self, encoder: Encoder) -> ResponseBody {
        let source = std::mem::replace(&mut self.source, Source::Bytes(Bytes::new()));
        // A script may mean its pauses; a disk does not.
        let flushes = !matches!(source, Source::File(_));
        self.source = Source::Compressed(Box::new(CompressedBody::new(source, encoder, flushes)));
        self
    }

    /// Lets the connection know when the body has ended, and writes this line.
    pub fn ends_request(mut self, clock: Rc<Clock>, entry: Option<Box<Entry>>) -> ResponseBody {
        if let Source::Tunnel(upstream) = &mut self.source {
            clock.keep_tunnel(upstream.take());
        }
        self.clock = Some(clock);
        self.log = entry;
        self
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.source).poll_frame(context));
        if let (Some(entry), Some(Ok(data))) = (&mut self.log, frame.as_ref().map(|f| f.as_ref().map(Frame::data_ref)))
        {
            entry.body_bytes += data.map_or(0, Bytes::len) as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.source.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(entry) = self.log.take() {
            entry.write();
        }
        if let Some(clock) = self.clock.take() {
            clock.request_ended();
        }
    }
}

// === impl Source ===

impl Body for Source {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Source::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::File(file) => Pin::new(file).poll_frame(context),
            Source::Php(php) => php.poll(context).map(|next| next.map(|bytes| bytes.map(Frame::data))),
            Source::Upstream(body) => body.poll(context).map(|next| next.map(|bytes| bytes.map(Frame::data))),
            Source::Compressed(body) => Pin::new(body).poll_frame(context),
            Source::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Source::Bytes(bytes) => bytes.is_empty(),
            Source::File(file) => file.is_end_stream(),
            Source::Php(php) => php.ended,
            Source::Upstream(body) => body.is_end_stream(),
            Source::Compressed(body) => body.is_end_stream(),
            Source::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Source::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::File(file) => file.size_hint(),
            Source::Php(_) | Source::Compressed(_) => SizeHint::default(),
            Source::Upstream(body) => body.size_hint(),
            Source::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}

// === impl PhpBody ===

impl PhpBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        let next = ready!(self.port.poll_body(&self.running, context));
        self.ended = next.is_none();
        Poll::Ready(next)
    }
}

impl Drop for PhpBody {
    fn drop(&mut self) {
        self.port.abandon(&self.running);
    }
}
