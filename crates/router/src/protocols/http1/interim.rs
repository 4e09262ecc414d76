//! interim responses to the current request: 103 (Early Hints, RFC 8297) and others that go out before its response
//! (RFC 9110, 15.2).
//!
//! hyper's server cannot send them. Their heads are queued here, and the socket writes them before the next byte of hyper's.
//! They are queued only while hyper has nothing else to write, so that the next byte is the first of the response.
//! Elsewhere they are dropped, as a client may expect of any of them.

use crate::protocols::connection::heads::interim_limit::InterimLimit;
use bytes::{Buf, BytesMut};
use http::{HeaderMap, StatusCode};
use std::cell::{Cell, RefCell};

/// The interim responses of a connection.
#[derive(Default)]
pub struct InterimResponses {
    queue: RefCell<BytesMut>,
    /// Whether the client of the current request understands them.
    is_understood: Cell<bool>,
    /// How many bytes the current request has queued.
    limit: InterimLimit,
}

// === impl InterimResponses ===

impl InterimResponses {
    /// A request has begun. A client with HTTP/1.0 does not understand interim responses.
    pub fn request_began(&self, is_understood: bool) {
        self.is_understood.set(is_understood);
        self.limit.reset();
        self.queue.take();
    }

    /// Queues a response.
    pub fn queue(&self, status: StatusCode, headers: &HeaderMap) {
        if !self.is_understood.get() {
            return;
        }
        let Some(size) = self.limit.take(status, headers) else { return };
        let queue = &mut *self.queue.borrow_mut();
        queue.reserve(size);
        queue.extend_from_slice(b"HTTP/1.1 ");
        queue.extend_from_slice(status.as_str().as_bytes());
        queue.extend_from_slice(b" ");
        queue.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        queue.extend_from_slice(b"\r\n");
        for (name, value) in headers {
            write_capitalized(queue, name.as_str());
            queue.extend_from_slice(b": ");
            queue.extend_from_slice(value.as_bytes());
            queue.extend_from_slice(b"\r\n");
        }
        queue.extend_from_slice(b"\r\n");
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Passes the queued bytes to a writer, which returns how many it has taken, and forgets these.
    pub fn write<R>(&self, write: impl FnOnce(&[u8]) -> (usize, R)) -> R {
        let mut queue = self.queue.borrow_mut();
        let (written, result) = write(&queue);
        queue.advance(written);
        result
    }
}

/// As hyper writes the names of other responses.
fn write_capitalized(queue: &mut BytesMut, name: &str) {
    let mut begins = true;
    queue.extend(name.bytes().map(|byte| {
        let begins = std::mem::replace(&mut begins, byte == b'-');
        if begins { byte.to_ascii_uppercase() } else { byte }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::connection::heads::interim_limit::MAX_BYTES;
    use http::header::{HeaderValue, LINK};

    fn written(interim: &InterimResponses) -> String {
        interim.write(|bytes| (bytes.len(), String::from_utf8(bytes.to_vec()).unwrap()))
    }

    fn hints(link: &str) -> HeaderMap {
        [(LINK, HeaderValue::from_str(link).unwrap())].into_iter().collect()
    }

    #[test]
    fn heads_are_written_as_other_heads() {
        let interim = InterimResponses::default();
        interim.request_began(true);
        let mut headers = hints("</a.css>; rel=preload");
        headers.append(LINK, HeaderValue::from_static("</b.css>"));
        headers.append("content-security-policy", HeaderValue::from_static("a"));
        interim.queue(StatusCode::EARLY_HINTS, &headers);
        interim.queue(StatusCode::PROCESSING, &HeaderMap::new());
        assert_eq!(interim.write(|bytes| (9, bytes.len())), 128);
        assert_eq!(
            written(&interim),
            "103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.css>\r\nContent-Security-Policy: a\r\n\r\n\
             HTTP/1.1 102 Processing\r\n\r\n"
        );
        assert!(interim.is_empty());
    }

    #[test]
    fn some_are_dropped() {
        let interim = InterimResponses::default();
        interim.queue(StatusCode::EARLY_HINTS, &hints("before any request"));
        interim.request_began(false);
        interim.queue(StatusCode::EARLY_HINTS, &hints("HTTP/1.0"));
        interim.request_began(true);
        for status in [StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS, StatusCode::OK] {
            interim.queue(status, &hints("x"));
        }
        interim.queue(StatusCode::EARLY_HINTS, &hints(&"x".repeat(MAX_BYTES)));
        assert!(interim.is_empty());
        interim.queue(StatusCode::EARLY_HINTS, &hints("of a request that has ended"));
        interim.request_began(true);
        assert!(interim.is_empty());
    }

    #[test]
    fn a_request_has_a_limit() {
        let interim = InterimResponses::default();
        interim.request_began(true);
        for _ in 0..100 {
            interim.queue(StatusCode::EARLY_HINTS, &hints(&"x".repeat(1000)));
            written(&interim);
        }
        assert!((MAX_BYTES - 1100..=MAX_BYTES).contains(&interim.limit.used()));
        interim.request_began(true);
        (0..10_000).for_each(|_| interim.queue(StatusCode::PROCESSING, &HeaderMap::new()));
        assert!(written(&interim).len() <= MAX_BYTES, "without headers, too");
    }
}
