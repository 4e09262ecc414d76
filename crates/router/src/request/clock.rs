//! A request's view of its connection, in all versions of HTTP.

use crate::connection::refusal::HeadRefusal;
use crate::http1::clock::Clock;
use crate::http2::stream_clock::StreamClock;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::Upgraded;
use std::any::Any;
use std::rc::Rc;
use std::time::Instant;

/// The clock of a request: its connection's own with HTTP/1, and that of its stream with HTTP/2.
#[derive(Clone)]
pub enum RequestClock {
    /// The only current request of its connection.
    Http1(Rc<Clock>),
    /// One of several.
    Http2(Rc<StreamClock>),
}

// === impl RequestClock ===

impl RequestClock {
    /// When the first byte of the request came; with HTTP/2, the last byte of its head.
    pub fn since(&self) -> Instant {
        match self {
            RequestClock::Http1(clock) => clock.request_since(),
            RequestClock::Http2(clock) => clock.since(),
        }
    }

    /// Why the request is refused, if it is.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        match self {
            RequestClock::Http1(clock) => clock.refusal(),
            RequestClock::Http2(clock) => clock.refusal(),
        }
    }

    /// Sends an interim response, such as 103, before the response. It is dropped where the client does not understand it.
    pub fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        match self {
            RequestClock::Http1(clock) => clock.inform(status, headers),
            RequestClock::Http2(clock) => clock.inform(status, headers),
        }
    }

    /// Keeps a value until the request ends; until the end of the tunnel that it may become.
    pub fn hold(&self, value: impl Any) {
        match self {
            RequestClock::Http1(clock) => clock.hold(value),
            RequestClock::Http2(clock) => clock.hold(value),
        }
    }

    /// The response is a 101: a tunnel to the upstream follows.
    pub fn keep_tunnel(&self, upstream: Upgraded) {
        match self {
            RequestClock::Http1(clock) => clock.keep_tunnel(upstream),
            RequestClock::Http2(clock) => clock.keep_tunnel(upstream),
        }
    }

    /// The response has been handed out.
    pub fn request_ended(&self) {
        match self {
            RequestClock::Http1(clock) => clock.request_ended(),
            RequestClock::Http2(clock) => clock.request_ended(),
        }
    }
}
