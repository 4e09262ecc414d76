//! Decides whether a connection changes its protocol: the client must request it, and the upstream must agree.
//!
//! `h2c` is never passed on: it is HTTP again, and its requests would bypass the routes. Neither is a protocol that is
//! no name: another program may read `"h2c"` or `h2c;q=1` as h2c.

use crate::protocols::connection::framing::has_option;
use http::header::{HeaderMap, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Method, Version};

/// The protocols that a request asks for (RFC 9110, 7.8); `None` if it asks for no change.
///
/// Only a `GET` without a body may ask for one, as for a WebSocket. (A request of HTTP/2 has these headers only if it asks
/// for a WebSocket in the way of HTTP/2.)
pub fn requested(request: &Parts, has_body: bool) -> Option<HeaderValue> {
    if request.method != Method::GET || has_body || request.version == Version::HTTP_10 {
        return None;
    }
    let mut values = request.headers.get_all(UPGRADE).iter();
    let (Some(protocols), None) = (values.next(), values.next()) else { return None };
    if !has_option(&request.headers, "upgrade") {
        return None;
    }
    let mut names = split(protocols);
    names.all(|name| is_protocol(name) && !is_http(name)).then(|| protocols.clone())
}

/// Whether a 101 changes to a protocol that was requested.
pub fn is_granted(response: &HeaderMap, requested: &HeaderValue) -> bool {
    let mut values = response.get_all(UPGRADE).iter();
    let (Some(granted), None) = (values.next(), values.next()) else { return false };
    let granted = granted.as_bytes().trim_ascii();
    split(requested).any(|name| name.eq_ignore_ascii_case(granted))
}

fn split(protocols: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    protocols.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether this is a name, perhaps with a version (RFC 9110, 7.8).
fn is_protocol(protocol: &[u8]) -> bool {
    let mut parts = protocol.split(|byte| *byte == b'/');
    let is_token = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| is_token_byte(*byte));
    parts.by_ref().take(2).all(is_token) && parts.next().is_none()
}

/// RFC 9110, 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_http(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == b'/').next().unwrap_or_default().to_ascii_lowercase();
    matches!(&*name, b"h2" | b"h2c" | b"http")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("request").into_parts().0
    }

    #[test]
    fn an_upgrade_needs_all_of_its_headers() {
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, Headers<'_>, bool); 16] = [
            ("GET", &[("connection", "Upgrade"), ("upgrade", "websocket")], true),
            ("GET", &[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")], true),
            ("GET", &[("connection", "upgrade"), ("upgrade", "a/1, b")], true),
            ("GET", &[("upgrade", "websocket")], false),
            ("GET", &[("connection", "upgrade")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")], false),
            ("GET", &[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "websocket, H2C")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "HTTP/2.0")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "\"h2c\"")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "h2c;q=1")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "websocket, h2c/")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "websocket h2c")], false),
            ("GET", &[("connection", "upgrade"), ("upgrade", "a/1/h2c")], false),
            ("POST", &[("connection", "upgrade"), ("upgrade", "websocket")], false),
        ];
        for (method, headers, expected) in cases {
            let request = request(method, headers);
            assert_eq!(requested(&request, false).is_some(), expected, "{method} {headers:?}");
            assert_eq!(requested(&request, true), None);
        }
    }

    #[test]
    fn only_a_requested_protocol_is_granted() {
        let cases: [(&str, &[&str], bool); 6] = [
            ("websocket", &["WebSocket"], true),
            ("a/1, b", &["b"], true),
            ("websocket", &[], false),
            ("websocket", &["h2c"], false),
            ("websocket", &["websocket", "websocket"], false),
            ("websocket", &["websocket, h2c"], false),
        ];
        for (asked, granted, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in granted {
                headers.append(UPGRADE, HeaderValue::from_str(value).expect("value"));
            }
            let asked = HeaderValue::from_str(asked).expect("value");
            assert_eq!(is_granted(&headers, &asked), expected, "{asked:?} {granted:?}");
        }
    }
}
