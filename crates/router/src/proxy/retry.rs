//! When a request may be sent again, and how old a connection may be that must not fail it.
//!
//! An upstream may close an idle connection in the moment in which a request is sent on it. Who sees the connection die
//! without one byte of a response cannot know whether the request was carried out (RFC 9110, 9.2.2).

use http::Method;
use std::time::Duration;

/// The longest that a connection stays idle in a pool.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection that was used so recently is not about to be closed for its idleness.
const SURELY_FRESH: Duration = Duration::from_secs(1);

/// What there is to know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    is_idempotent: bool,
    has_body: bool,
}

// === impl Attempt ===

impl Attempt {
    /// A request with this method, with a body or without.
    pub fn new(method: &Method, has_body: bool) -> Attempt {
        let is_idempotent =
            matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE);
        Attempt { is_idempotent, has_body }
    }

    /// Whether it may be sent again when its connection died without one byte of a response.
    ///
    /// A body that was begun is gone. As long as nothing of it was sent, nothing can have been done with it.
    pub fn may_repeat(self, body_was_begun: bool) -> bool {
        !body_was_begun && (self.is_idempotent || self.has_body)
    }

    /// How long the connection may have been idle on which it is sent first.
    pub fn most_idle(self) -> Duration {
        if self.is_idempotent && !self.has_body { IDLE_TIMEOUT } else { SURELY_FRESH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_harms_nobody_twice_is_repeated() {
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
            let attempt = Attempt::new(&Method::from_bytes(method.as_bytes()).expect("method"), has_body);
            assert_eq!(attempt.may_repeat(begun), may_repeat, "{method} {has_body} {begun}");
            assert_eq!(attempt.most_idle() == IDLE_TIMEOUT, any_connection, "{method} {has_body}");
        }
    }
}
