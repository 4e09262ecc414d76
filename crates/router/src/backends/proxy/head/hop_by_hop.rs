//! The headers that belong to one connection only, and are not passed on (RFC 9110, 7.6.1).

use crate::protocols::connection::framing::list_members;
use http::HeaderMap;
use http::header::{
    CONNECTION, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use std::collections::HashSet;

/// The headers of a message that belong to its connection: those of certain kinds, and those that `Connection` names.
///
/// `Connection` may have thousands of options. Only those that name a header of the message are kept.
pub struct ConnectionHeaders(HashSet<HeaderName>);

// === impl ConnectionHeaders ===

impl ConnectionHeaders {
    /// Reads the `Connection` headers. An option that is not a valid header name is ignored.
    pub fn of(headers: &HeaderMap) -> ConnectionHeaders {
        let names = list_members(headers, CONNECTION).filter_map(|option| HeaderName::from_bytes(option).ok());
        ConnectionHeaders(names.filter(|name| headers.contains_key(name)).collect())
    }

    /// Whether a header of the message is not passed on: because of its kind, or because `Connection` names it.
    ///
    /// `Host` is passed on with every request, even if `Connection` names it.
    pub fn contains(&self, name: &HeaderName) -> bool {
        belongs_to_connection(name) || *name != HOST && self.0.contains(name)
    }

    /// Removes the headers that are not passed on.
    pub fn remove_from(&self, headers: &mut HeaderMap) {
        let names: Vec<HeaderName> = headers.keys().filter(|name| self.contains(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// Whether the client accepts trailers (RFC 9110, 10.1.4).
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    list_members(headers, TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// howdah itself answers `Expect`, when the upstream is connected and reads the body. `Proxy` is not a header of HTTP;
/// programs take it for one of their settings (CVE-2016-5385).
fn belongs_to_connection(name: &HeaderName) -> bool {
    matches!(*name, CONNECTION | TE | TRAILER | TRANSFER_ENCODING | UPGRADE | EXPECT)
        || matches!(*name, PROXY_AUTHENTICATE | PROXY_AUTHORIZATION)
        || matches!(name.as_str(), "keep-alive" | "http2-settings" | "proxy")
        || name.as_str().starts_with("proxy-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn left_of(headers: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        ConnectionHeaders::of(&map).remove_from(&mut map);
        let mut left: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect();
        left.sort();
        left
    }

    #[test]
    fn headers_of_the_connection_are_removed() {
        for name in [
            "connection",
            "keep-alive",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "expect",
            "proxy",
            "proxy-connection",
            "proxy-authorization",
            "proxy-authenticate",
            "proxy-whatever",
            "http2-settings",
        ] {
            assert_eq!(left_of(&[(name, "x"), ("accept", "y")]), ["accept: y"], "{name}");
        }
        assert_eq!(left_of(&[("proximity", "x"), ("cookie", "a"), ("cookie", "b")]).len(), 3);
    }

    #[test]
    fn headers_named_by_connection_are_removed() {
        let cases: [(&[&'static str], &[&str]); 6] = [
            (&["x-a"], &["content-length: 1", "host: h", "x-b: b"]),
            (&["close, X-A ,,x-b"], &["content-length: 1", "host: h"]),
            (&["x-a", "x-b"], &["content-length: 1", "host: h"]),
            (&["host"], &["content-length: 1", "host: h", "x-a: a", "x-b: b"]),
            // Removing the length does no harm: howdah writes the framing itself.
            (&["content-length"], &["host: h", "x-a: a", "x-b: b"]),
            (&["a b, \"x-a\", @"], &["content-length: 1", "host: h", "x-a: a", "x-b: b"]),
        ];
        for (connection, expected) in cases {
            let mut headers = vec![("host", "h"), ("x-a", "a"), ("x-b", "b"), ("content-length", "1")];
            headers.extend(connection.iter().map(|value| ("connection", *value)));
            assert_eq!(left_of(&headers), expected, "{connection:?}");
        }
    }

    #[test]
    fn options_without_a_header_are_not_kept() {
        let mut headers = HeaderMap::new();
        let options = (0..9000).map(|number| format!("o{number}")).chain(std::iter::repeat_n("x-a".into(), 9000));
        let options = options.collect::<Vec<_>>().join(",");
        headers.insert(CONNECTION, HeaderValue::from_str(&options).expect("ASCII"));
        headers.insert("x-a", HeaderValue::from_static("1"));
        assert_eq!(ConnectionHeaders::of(&headers).0.len(), 1);
    }
}
