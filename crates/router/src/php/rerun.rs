//! What becomes of a request whose worker died before it had answered anything: `retry`.
//!
//! One that may be run twice, and has no body, is run once more, by another worker; all others are answered 502. Either
//! is told in the log, with the request: it may be the one that kills workers.

use crate::php::port::Port;
use howdah_config::Retry;
use http::Method;
use http::request::Parts;

/// Whether a request of this method, without a body, may be run once more.
pub fn is_allowed(retry: Retry, method: &Method) -> bool {
    // RFC 9110 calls more of them idempotent, and few scripts agree.
    retry == Retry::Idempotent && matches!(*method, Method::GET | Method::HEAD)
}

/// Tells what becomes of it.
pub fn tell(port: &Port, request: &Parts, what: &str) {
    // The query may hold what is nobody's business.
    let Parts { method, uri, .. } = request;
    tracing::warn!(
        application = port.generation.application,
        "a worker died; its request, {method} {}, is {what}",
        uri.path()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_safe_is_run_twice_and_only_if_asked_for() {
        let cases = [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::POST, false),
            (Method::PUT, false),
            (Method::DELETE, false),
        ];
        for (method, expected) in cases {
            assert_eq!(is_allowed(Retry::Idempotent, &method), expected, "{method}");
            assert!(!is_allowed(Retry::Never, &method));
        }
    }
}
