//! A request's view of its connection, in all versions of HTTP, and in FastCGI.

use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::fastcgi_listener::clock::FastCgiClock;
use crate::protocols::http1::clock::Clock;
use crate::protocols::http2::stream_clock::StreamClock;
use crate::protocols::http3;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::Upgraded;
use std::any::Any;
use std::rc::Rc;
use std::time::Instant;

/// The clock of a request: its connection's own with HTTP/1, and that of its stream with HTTP/2 and HTTP/3.
#[derive(Clone)]
pub enum RequestClock {
    /// The only current request of its connection.
    Http1(Rc<Clock>),
    /// One of several.
    Http2(Rc<StreamClock>),
    /// One of several.
    Http3(Rc<http3::stream_clock::StreamClock>),
    /// The only current request of a web server's connection.
    FastCgi(Rc<FastCgiClock>),
}

// === impl RequestClock ===

impl RequestClock {
    /// When the first byte of the request came; with HTTP/2 and HTTP/3, the last byte of its head.
    pub fn since(&self) -> Instant {
        match self {
            RequestClock::Http1(clock) => clock.request_since(),
            RequestClock::Http2(clock) => clock.since(),
            RequestClock::Http3(clock) => clock.since(),
            RequestClock::FastCgi(clock) => clock.request_since(),
        }
    }

    /// Why the request is refused, if it is.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        match self {
            RequestClock::Http1(clock) => clock.refusal(),
            RequestClock::Http2(clock) => clock.refusal(),
            RequestClock::Http3(clock) => clock.refusal(),
            RequestClock::FastCgi(clock) => clock.refusal(),
        }
    }

    /// Sends an interim response, such as 103, before the response. It is dropped where the client does not understand it.
    pub fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        match self {
            RequestClock::Http1(clock) => clock.inform(status, headers),
            RequestClock::Http2(clock) => clock.inform(status, headers),
            RequestClock::Http3(clock) => clock.inform(status, headers),
            // CGI has no place for them.
            RequestClock::FastCgi(_) => {}
        }
    }

    /// Keeps a value until the request ends; until the end of the tunnel that it may become.
    pub fn hold(&self, value: impl Any) {
        match self {
            RequestClock::Http1(clock) => clock.hold(value),
            RequestClock::Http2(clock) => clock.hold(value),
            RequestClock::Http3(clock) => clock.hold(value),
            RequestClock::FastCgi(clock) => clock.hold(value),
        }
    }

    /// The response is a 101: a tunnel to the upstream follows.
    pub fn keep_tunnel(&self, upstream: Upgraded) {
        match self {
            RequestClock::Http1(clock) => clock.keep_tunnel(upstream),
            RequestClock::Http2(clock) => clock.keep_tunnel(upstream),
            RequestClock::Http3(clock) => clock.keep_tunnel(upstream),
            // A web server passes no `Upgrade` on, so that no request asks for one.
            RequestClock::FastCgi(_) => drop(upstream),
        }
    }

    /// Whether a web server in front writes the headers of howdah's own name and of the date.
    pub fn is_behind_web_server(&self) -> bool {
        matches!(self, RequestClock::FastCgi(_))
    }

    /// The response has been handed out.
    pub fn request_ended(&self) {
        match self {
            RequestClock::Http1(clock) => clock.request_ended(),
            RequestClock::Http2(clock) => clock.request_ended(),
            RequestClock::Http3(clock) => clock.request_ended(),
            RequestClock::FastCgi(clock) => clock.request_ended(),
        }
    }
}
