//! `retry`: which requests are run once more when their worker died before the response had begun.

use howdah_config::Retry;
use http::Method;

/// Whether a request of this method, without a body, may be run once more.
pub fn is_allowed(retry: Retry, method: &Method) -> bool {
    // RFC 9110 calls more methods idempotent, but few scripts agree.
    retry == Retry::Idempotent && matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_methods_are_run_twice_and_only_if_configured() {
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
