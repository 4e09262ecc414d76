//! A request's body as it comes from the client, and the treatment of a body that no action reads.
//!
//! The connection can go on only after a body that was read to its end. If the rest of a body has already arrived, it is
//! read and dropped. If it has not, the response announces the end of the connection.

use crate::http1::clock::Clock;
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
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
    body: RefCell<hyper::body::Incoming>,
    clock: Rc<Clock>,
    has_ended: Cell<bool>,
}

// === impl IncomingBody ===

impl IncomingBody {
    /// The body of the connection's current request.
    pub fn new(body: hyper::body::Incoming, clock: &Rc<Clock>) -> IncomingBody {
        if body.is_end_stream() {
            clock.body_ended();
            return IncomingBody { received: None };
        }
        let received = Received { body: RefCell::new(body), clock: Rc::clone(clock), has_ended: Cell::new(false) };
        IncomingBody { received: Some(Rc::new(received)) }
    }

    /// The handle for the rest that the action does not read.
    pub fn unread(&self) -> UnreadBody {
        UnreadBody { received: self.received.clone() }
    }
}

impl Body for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
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
        // Reading would request the body from a client that waits for `100 Continue`.
        if !received.clock.has_come() || request.headers.contains_key(EXPECT) {
            return false;
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
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut body = self.body.borrow_mut();
        let polled = Pin::new(&mut *body).poll_frame(context);
        let is_last = match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => false,
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
        };
        if is_last && !self.has_ended.replace(true) {
            self.clock.body_ended();
        }
        polled
    }
}
