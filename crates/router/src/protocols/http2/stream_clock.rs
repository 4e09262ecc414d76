//! The clock of a stream: since when its request is there, whether the client still is, and how to reach it before the
//! response.

use crate::protocols::connection::heads::interim_limit::InterimLimit;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::http2::clock::MultiplexedClock;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::Upgraded;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The clock of one request.
pub struct StreamClock {
    connection: Rc<MultiplexedClock>,
    since: Instant,
    refusal: Option<HeadRefusal>,
    /// `None` once the response has begun, or the request has ended.
    respond: RefCell<Option<SendResponse<Bytes>>>,
    interim: InterimLimit,
    /// Whether the client waits for a `100 Continue` before it sends its body.
    expects_continue: Cell<bool>,
    /// The client's side of a tunnel, if the request asks for one.
    tunnel_bytes: RefCell<Option<RecvStream>>,
    /// The upstream's connection, if the response was a 101.
    tunnel: Cell<Option<Upgraded>>,
    /// Dropped when the request ends, or the tunnel.
    held: RefCell<Vec<Box<dyn Any>>>,
}

// === impl StreamClock ===

impl StreamClock {
    /// The clock of a request that has just come.
    pub fn new(
        connection: Rc<MultiplexedClock>,
        respond: SendResponse<Bytes>,
        refusal: Option<HeadRefusal>,
        expects_continue: bool,
    ) -> StreamClock {
        StreamClock {
            connection,
            since: Instant::now(),
            refusal,
            respond: RefCell::new(Some(respond)),
            interim: InterimLimit::default(),
            expects_continue: Cell::new(expects_continue),
            tunnel_bytes: RefCell::default(),
            tunnel: Cell::default(),
            held: RefCell::default(),
        }
    }

    /// Keeps the bytes that follow a request for a tunnel.
    pub fn keep_bytes(&self, received: RecvStream) {
        self.tunnel_bytes.replace(Some(received));
    }

    /// The response is a 101: the stream becomes a tunnel to the upstream.
    pub fn keep_tunnel(&self, upstream: Upgraded) {
        self.tunnel.set(Some(upstream));
    }

    /// Both sides of the tunnel that the response has granted.
    pub fn take_tunnel(&self) -> Option<(RecvStream, Upgraded)> {
        let upstream = self.tunnel.take()?;
        self.tunnel_bytes.take().map(|received| (received, upstream))
    }

    /// Whether the request asks for a tunnel.
    pub fn asks_for_tunnel(&self) -> bool {
        self.tunnel_bytes.borrow().is_some()
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

    /// Sends an interim response, such as 103, before the response. It is dropped if the client takes nothing.
    pub fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        let room = self.connection.send_room();
        if room.takes_heads()
            && let Some(bytes) = self.interim.take(status, headers)
        {
            room.passed_head_on(bytes);
            self.send_interim(status, headers.clone());
        }
    }

    /// The body is needed: a client that waits for this may send it.
    pub fn ask_for_body(&self) {
        if self.expects_continue.take() {
            self.send_interim(StatusCode::CONTINUE, HeaderMap::new());
        }
    }

    /// Ready when the client has reset the stream, or the connection has ended.
    pub fn poll_reset(&self, context: &mut Context<'_>) -> Poll<()> {
        match &mut *self.respond.borrow_mut() {
            Some(respond) => respond.poll_reset(context).map(|_| ()),
            None => Poll::Pending,
        }
    }

    /// The way to respond: the response begins.
    pub fn take_respond(&self) -> Option<SendResponse<Bytes>> {
        self.respond.borrow_mut().take()
    }

    /// The response has been handed out.
    pub fn request_ended(&self) {
        let tunnel = self.tunnel.take();
        if tunnel.is_none() {
            self.held.take();
        }
        self.tunnel.set(tunnel);
    }

    /// The stream has ended, with or without a response.
    pub fn stream_ended(&self) {
        self.held.take();
        self.tunnel.take();
        self.tunnel_bytes.take();
        // Without a response, h2 resets the stream once its body is dropped, too.
        self.respond.take();
    }

    fn send_interim(&self, status: StatusCode, headers: HeaderMap) {
        let Some(respond) = &mut *self.respond.borrow_mut() else { return };
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        if let Err(error) = respond.send_informational(response) {
            tracing::debug!(%error, status = status.as_u16(), "an interim response is dropped");
        }
    }
}
