//! Which headers belong to one connection only, and are not passed on (RFC 9110, 7.6.1).

use http::HeaderMap;
use http::header::{
    CONNECTION, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};

/// What a message's `Connection` headers name.
pub struct Named(Vec<HeaderName>);

// === impl Named ===

impl Named {
    /// Reads them. What is no name of a header names nothing.
    pub fn by(headers: &HeaderMap) -> Named {
        Named(options(headers).filter_map(|option| HeaderName::from_bytes(option).ok()).collect())
    }

    /// Whether a header stays behind: as each of its kind does, or since `Connection` names it.
    ///
    /// `Host` goes with every request, whatever a client says.
    pub fn stays_behind(&self, name: &HeaderName) -> bool {
        belongs_to_connection(name) || *name != HOST && self.0.contains(name)
    }

    /// Removes what stays behind.
    pub fn remove_from(&self, headers: &mut HeaderMap) {
        let names: Vec<HeaderName> = headers.keys().filter(|name| self.stays_behind(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// Whether `Connection` has this option, in whatever case.
pub fn has_option(headers: &HeaderMap, option: &str) -> bool {
    options(headers).any(|other| other.eq_ignore_ascii_case(option.as_bytes()))
}

fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(CONNECTION).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
}

/// `Expect` is answered by howdah itself, when the upstream is connected and the body wanted. `Proxy` is no header of
/// HTTP; programs take it for a setting of theirs (CVE-2016-5385).
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
        Named::by(&map).remove_from(&mut map);
        let mut left: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect();
        left.sort();
        left
    }

    #[test]
    fn what_belongs_to_the_connection_stays_behind() {
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
    fn what_connection_names_stays_behind() {
        let cases: [(&[&'static str], &[&str]); 6] = [
            (&["x-a"], &["content-length: 1", "host: h", "x-b: b"]),
            (&["close, X-A ,,x-b"], &["content-length: 1", "host: h"]),
            (&["x-a", "x-b"], &["content-length: 1", "host: h"]),
            (&["host"], &["content-length: 1", "host: h", "x-a: a", "x-b: b"]),
            // How long the body is, is not for this header to say: framing is made anew.
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
    fn options_are_found_in_any_case() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive, UPGRADE"));
        assert!(has_option(&headers, "upgrade") && has_option(&headers, "Keep-Alive"));
        assert!(!has_option(&headers, "up"));
    }
}
