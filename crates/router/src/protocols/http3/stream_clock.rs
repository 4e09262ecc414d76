//! The clock of a stream: since when its request is there, and how to reach the client before the response.

use crate::protocols::connection::heads::interim_limit::InterimLimit;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::Upgraded;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Instant;
use tokio::sync::Notify;

/// The clock of one request.
pub struct StreamClock {
    since: Instant,
    refusal: Option<HeadRefusal>,
    interim: InterimLimit,
    /// Interim responses that were not sent yet.
    interim_responses: RefCell<VecDeque<Response<()>>>,
    has_interim: Notify,
    /// Whether the client waits for a `100 Continue` before it sends its body.
    expects_continue: Cell<bool>,
    /// Whether the body contradicts its head.
    is_malformed: Cell<bool>,
    /// Dropped when the request ends.
    held: RefCell<Vec<Box<dyn Any>>>,
}

// === impl StreamClock ===

impl StreamClock {
    /// The clock of a request that has just come.
    pub fn new(refusal: Option<HeadRefusal>, expects_continue: bool) -> StreamClock {
        StreamClock {
            since: Instant::now(),
            refusal,
            interim: InterimLimit::default(),
            interim_responses: RefCell::default(),
            has_interim: Notify::new(),
            expects_continue: Cell::new(expects_continue),
            is_malformed: Cell::new(false),
            held: RefCell::default(),
        }
    }

    /// When the request came.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Why the request is refused, if it is.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        self.refusal
    }

    /// Keeps a value until the request ends.
    pub fn hold(&self, value: impl Any) {
        self.held.borrow_mut().push(Box::new(value));
    }

    /// Sends an interim response, such as 103, before the response.
    pub fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        if self.interim.take(status, headers).is_some() {
            self.add_interim(status, headers.clone());
        }
    }

    /// The body is needed: a client that waits for this may send it.
    pub fn ask_for_body(&self) {
        if self.expects_continue.take() {
            self.add_interim(StatusCode::CONTINUE, HeaderMap::new());
        }
    }

    /// The next interim response to send.
    pub fn take_interim(&self) -> Option<Response<()>> {
        self.interim_responses.borrow_mut().pop_front()
    }

    /// Waits for an interim response to send.
    pub async fn next_interim(&self) -> Response<()> {
        loop {
            if let Some(response) = self.take_interim() {
                return response;
            }
            self.has_interim.notified().await;
        }
    }

    /// The body contradicts its head: the stream is reset.
    pub fn set_malformed(&self) {
        self.is_malformed.set(true);
    }

    /// Whether the body contradicts its head.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed.get()
    }

    /// HTTP/3 has no tunnels here: no request asks for one.
    pub fn keep_tunnel(&self, upstream: Upgraded) {
        drop(upstream);
    }

    /// The response has been handed out, or the stream has ended without one.
    pub fn request_ended(&self) {
        self.held.take();
    }

    fn add_interim(&self, status: StatusCode, headers: HeaderMap) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        self.interim_responses.borrow_mut().push_back(response);
        self.has_interim.notify_one();
    }
}
