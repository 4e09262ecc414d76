//! A request's body as it comes from the client, and the treatment of a body that no action reads.
//!
//! The connection can go on only after a body that was read to its end. If the rest of a body has already arrived, it is
//! read and dropped. If it has not, the response announces the end of the connection. (With HTTP/2 and HTTP/3, a body
//! belongs to its stream: the rest is never waited for. A FastCGI connection is closed by itself.)

use crate::protocols::fastcgi_listener::request_body::RequestBody as FastCgiBody;
use crate::protocols::http1::clock::Clock;
use crate::protocols::http2::request_body::RequestBody;
use crate::protocols::http3;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A request's body.
pub struct IncomingBody {
    /// `None` for a request without a body.
    received: Option<Rc<Received>>,
}

/// The rest of a body, after the action has dropped it.
pub struct UnreadBody {
    received: Option<Rc<Received>>,
}

struct Received {
    body: RefCell<VersionedBody>,
    has_ended: Cell<bool>,
}

enum VersionedBody {
    Http1(hyper::body::Incoming, Rc<Clock>),
    Http2(RequestBody),
    Http3(Box<http3::request_body::RequestBody>),
    FastCgi(FastCgiBody),
}

// === impl IncomingBody ===

impl IncomingBody {
    /// The body of the connection's current request.
    pub fn of_http1(body: hyper::body::Incoming, clock: &Rc<Clock>) -> IncomingBody {
        if body.is_end_stream() {
            clock.body_ended();
            return IncomingBody { received: None };
        }
        IncomingBody::of(VersionedBody::Http1(body, Rc::clone(clock)))
    }

    /// The body of a stream.
    pub fn of_http2(body: RequestBody) -> IncomingBody {
        if body.is_end_stream() {
            return IncomingBody { received: None };
        }
        IncomingBody::of(VersionedBody::Http2(body))
    }

    /// The body of a stream of HTTP/3.
    pub fn of_http3(body: http3::request_body::RequestBody) -> IncomingBody {
        if body.is_end_stream() {
            return IncomingBody { received: None };
        }
        IncomingBody::of(VersionedBody::Http3(Box::new(body)))
    }

    /// The body of a request from a web server.
    pub fn of_fastcgi(body: FastCgiBody) -> IncomingBody {
        if body.is_end_stream() {
            return IncomingBody { received: None };
        }
        IncomingBody::of(VersionedBody::FastCgi(body))
    }

    fn of(body: VersionedBody) -> IncomingBody {
        let received = Received { body: RefCell::new(body), has_ended: Cell::new(false) };
        IncomingBody { received: Some(Rc::new(received)) }
    }

    /// The handle for the rest that the action does not read.
    pub fn unread(&self) -> UnreadBody {
        UnreadBody { received: self.received.clone() }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &self.received {
            None => Poll::Ready(None),
            Some(received) => received.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.received.as_ref().is_none_or(|received| received.body.borrow().is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.received.as_ref().map_or(SizeHint::with_exact(0), |received| received.body.borrow().size_hint())
    }
}

// === impl UnreadBody ===

impl UnreadBody {
    /// Prepares the connection for the next request; `false` if there cannot be one.
    ///
    /// It does not wait for the client: it reads only bytes that have arrived.
    pub async fn settle(self, request: &Parts) -> bool {
        let Some(received) = self.received else { return true };
        // The proxy may still forward the body while the response is sent.
        if received.has_ended.get() || Rc::strong_count(&received) > 1 {
            return true;
        }
        match &*received.body.borrow() {
            VersionedBody::Http2(_) | VersionedBody::Http3(_) | VersionedBody::FastCgi(_) => return true,
            // Reading would request the body from a client that waits for `100 Continue`.
            VersionedBody::Http1(_, clock) if !clock.has_come() || request.headers.contains_key(EXPECT) => {
                return false;
            }
            VersionedBody::Http1(..) => {}
        }
        loop {
            match poll_fn(|context| received.poll_frame(context)).await {
                None => return true,
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
            }
        }
    }
}

// === impl Received ===

impl Received {
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut body = self.body.borrow_mut();
        let polled = Pin::new(&mut *body).poll_frame(context);
        let is_last = match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => false,
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
        };
        if is_last
            && !self.has_ended.replace(true)
            && let VersionedBody::Http1(_, clock) = &*body
        {
            clock.body_ended();
        }
        polled
    }
}

// === impl VersionedBody ===

impl Body for VersionedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            VersionedBody::Http1(body, _) => Pin::new(body).poll_frame(context).map_err(io::Error::other),
            VersionedBody::Http2(body) => Pin::new(body).poll_frame(context).map_err(io::Error::other),
            VersionedBody::Http3(body) => Pin::new(&mut **body).poll_frame(context),
            VersionedBody::FastCgi(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            VersionedBody::Http1(body, _) => body.is_end_stream(),
            VersionedBody::Http2(body) => body.is_end_stream(),
            VersionedBody::Http3(body) => body.is_end_stream(),
            VersionedBody::FastCgi(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            VersionedBody::Http1(body, _) => body.size_hint(),
            VersionedBody::Http2(body) => body.size_hint(),
            VersionedBody::Http3(body) => body.size_hint(),
            VersionedBody::FastCgi(body) => body.size_hint(),
        }
    }
}
