//! Decides when a request may be sent again, and how long its first connection may have been idle.
//!
//! An upstream may close an idle connection at the moment in which a request is sent on it. If the connection ends
//! without one byte of a response, it is unknown whether the request was carried out (RFC 9110, 9.2.2).

use http::Method;
use std::time::Duration;

/// How long a connection may be idle in a pool.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// A server does not close a connection for idleness within this time.
const SURELY_FRESH: Duration = Duration::from_secs(1);

/// The properties of a request that decide about its retry.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    is_idempotent: bool,
    has_body: bool,
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// For a request with this method, with or without a body.
    pub fn new(method: &Method, has_body: bool) -> RetryPolicy {
        let is_idempotent =
            matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE);
        RetryPolicy { is_idempotent, has_body }
    }

    /// Whether it may be sent again after its connection ended without one byte of a response.
    ///
    /// A body that has begun cannot be sent again. While no byte of a body was sent, its request was not carried out.
    pub fn may_repeat(self, body_has_begun: bool) -> bool {
        !body_has_begun && (self.is_idempotent || self.has_body)
    }

    /// How long the connection of the first attempt may have been idle.
    pub fn max_idle(self) -> Duration {
        if self.is_idempotent && !self.has_body { IDLE_TIMEOUT } else { SURELY_FRESH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_is_safe_to_repeat_is_repeated() {
        //   method, has a body, was begun, may be repeated, needs no fresh connection
        let cases = [
            ("GET", false, false, true, true),
            ("HEAD", false, false, true, true),
            ("DELETE", false, false, true, true),
            ("PUT", true, false, true, false),
            ("PUT", true, true, false, false),
            ("POST", false, false, false, false),
            ("POST", true, false, true, false),
            ("POST", true, true, false, false),
            ("PATCH", true, true, false, false),
            ("UNKNOWN", false, false, false, false),
        ];
        for (method, has_body, begun, may_repeat, any_connection) in cases {
            let attempt = RetryPolicy::new(&Method::from_bytes(method.as_bytes()).expect("method"), has_body);
            assert_eq!(attempt.may_repeat(begun), may_repeat, "{method} {has_body} {begun}");
            assert_eq!(attempt.max_idle() == IDLE_TIMEOUT, any_connection, "{method} {has_body}");
        }
    }
}
