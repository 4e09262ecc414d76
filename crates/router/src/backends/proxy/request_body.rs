//! A request's body on its way to an upstream: passed on as it comes, no faster than the upstream takes it.
//!
//! hyper polls it only when there is room for more, and the client's connection is read only then: that is also when
//! hyper answers `Expect: 100-continue`. An error of the client's body (too long, broken off, too slow) is remembered, so
//! that it is not taken for a fault of the upstream. Trailers are dropped.

use crate::backends::proxy::timeout::WaitTimeout;
use crate::request::incoming::IncomingBody;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_config::Http;
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A client's body. Several attempts may send it, one after another, until one has begun to.
pub struct ClientBody {
    incoming: RefCell<Option<IncomingBody>>,
    /// How many bytes were taken from the client.
    taken: Cell<u64>,
    state: Cell<BodyState>,
    failure: Cell<Option<Failure>>,
    max_bytes: u64,
    read_timeout: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// The upstream takes no more at the moment.
    Resting,
    /// The client has to send more.
    Waiting,
    /// The whole body was passed on.
    Ended,
}

/// The body of one attempt.
pub struct RequestBody {
    client: Rc<ClientBody>,
    timeout: WaitTimeout,
}

// === impl ClientBody ===

impl ClientBody {
    /// Wraps the body of a request.
    ///
    /// # Errors
    /// 413 if its announced length exceeds `max_body_size`.
    pub fn new(incoming: IncomingBody, limits: &Http) -> Result<Rc<ClientBody>, Failure> {
        if incoming.size_hint().lower() > limits.max_body_size {
            return Err(Failure::BodyTooLarge);
        }
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        Ok(Rc::new(ClientBody {
            state: Cell::new(if incoming.is_some() { BodyState::Resting } else { BodyState::Ended }),
            incoming: RefCell::new(incoming),
            taken: Cell::new(0),
            failure: Cell::new(None),
            max_bytes: limits.max_body_size,
            read_timeout: limits.body_read_timeout,
        }))
    }

    /// Whether the request has a body.
    pub fn exists(&self) -> bool {
        self.incoming.borrow().is_some()
    }

    /// Its length, if the client has announced it.
    pub fn exact_len(&self) -> Option<u64> {
        self.incoming.borrow().as_ref().map_or(Some(0), |incoming| incoming.size_hint().exact())
    }

    /// Whether a part of it was passed on, so that it cannot be sent again: bytes, or the end of an empty body.
    pub fn has_begun(&self) -> bool {
        self.taken.get() > 0 || self.exists() && self.has_ended()
    }

    /// Whether the exchange waits for the client.
    pub fn is_waiting(&self) -> bool {
        self.state.get() == BodyState::Waiting
    }

    /// Whether the whole body was passed on.
    pub fn has_ended(&self) -> bool {
        self.state.get() == BodyState::Ended
    }

    /// The error of the client's body.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.get()
    }

    /// The body for an attempt.
    pub fn attempt(self: &Rc<Self>) -> RequestBody {
        RequestBody { client: Rc::clone(self), timeout: WaitTimeout::new(self.read_timeout) }
    }

    fn fail(&self, failure: Failure) -> io::Error {
        self.failure.set(Some(failure));
        io::Error::other("the client's body failed")
    }

    fn take(&self, data: Bytes) -> io::Result<Frame<Bytes>> {
        self.taken.set(self.taken.get() + data.len() as u64);
        if self.taken.get() > self.max_bytes {
            return Err(self.fail(Failure::BodyTooLarge));
        }
        Ok(Frame::data(data))
    }
}

// === impl RequestBody ===

impl RequestBody {
    fn poll_client(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut incoming = self.client.incoming.borrow_mut();
        let Some(incoming) = &mut *incoming else { return Poll::Ready(None) };
        loop {
            return match Pin::new(&mut *incoming).poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(self.client.take(data))),
                    Err(_trailers) => continue,
                },
                Poll::Ready(Some(Err(_))) => {
                    let why = "the body breaks off, or its framing is wrong";
                    Poll::Ready(Some(Err(self.client.fail(Failure::BadRequest(why)))))
                }
            };
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.poll_client(context);
        let state = match polled {
            Poll::Pending => BodyState::Waiting,
            Poll::Ready(None) => BodyState::Ended,
            Poll::Ready(Some(_)) if self.is_end_stream() => BodyState::Ended,
            Poll::Ready(Some(_)) => BodyState::Resting,
        };
        self.client.state.set(state);
        if polled.is_ready() {
            self.timeout.stop();
            return polled;
        }
        self.timeout.poll_expired(context).map(|()| Some(Err(self.client.fail(Failure::RequestTimeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.client.incoming.borrow().as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.client.incoming.borrow().as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

#[cfg(test)]
impl ClientBody {
    /// The body of a request without one.
    pub fn none() -> Rc<ClientBody> {
        Rc::new(ClientBody {
            state: Cell::new(BodyState::Ended),
            incoming: RefCell::default(),
            taken: Cell::new(0),
            failure: Cell::new(None),
            max_bytes: 0,
            read_timeout: Duration::from_secs(30),
        })
    }

    /// The same, after an error of the client's body.
    pub fn failed(failure: Failure) -> Rc<ClientBody> {
        let body = ClientBody::none();
        body.failure.set(Some(failure));
        body
    }
}
