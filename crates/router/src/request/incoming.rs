//! A request's body as it comes from the client, and what becomes of a body that nobody reads.
//!
//! Whether all of it was read decides what the connection may do next. What is left of a body that has come already is
//! read and dropped, so that the connection can go on; what is still to come ends it, and the answer says so.

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

/// A client's body.
pub struct Incoming {
    /// `None`: there is none.
    received: Option<Rc<Received>>,
}

/// What is left of a body, once who got it has dropped it.
pub struct Rest {
    received: Option<Rc<Received>>,
}

struct Received {
    body: RefCell<hyper::body::Incoming>,
    clock: Rc<Clock>,
    has_ended: Cell<bool>,
}

// === impl Incoming ===

impl Incoming {
    /// The body of the request that the connection has begun.
    pub fn new(body: hyper::body::Incoming, clock: &Rc<Clock>) -> Incoming {
        if body.is_end_stream() {
            clock.body_ended();
            return Incoming { received: None };
        }
        let received = Received { body: RefCell::new(body), clock: Rc::clone(clock), has_ended: Cell::new(false) };
        Incoming { received: Some(Rc::new(received)) }
    }

    /// For who looks after what is left of it.
    pub fn rest(&self) -> Rest {
        Rest { received: self.received.clone() }
    }
}

impl Body for Incoming {
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

// === impl Rest ===

impl Rest {
    /// Sees to it that the connection can go on after this request; `false` if it cannot.
    ///
    /// Nobody is waited for: only what has come is read.
    pub async fn settle(self, request: &Parts) -> bool {
        let Some(received) = self.received else { return true };
        // Somebody may still pass it on while the response is sent.
        if received.has_ended.get() || Rc::strong_count(&received) > 1 {
            return true;
        }
        // To read it would tell a client that asks first that its body is wanted.
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
