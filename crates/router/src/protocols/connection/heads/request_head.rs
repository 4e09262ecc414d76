//! Strictness for HTTP/2 and HTTP/3, and the form of a head that all versions share.
//!
//! h2 has refused names in upper case, headers of connections (`Connection`, `Transfer-Encoding`), wrong pseudo headers,
//! control characters, and lengths that the body contradicts: it resets such a stream. h3 leaves the headers of connections
//! to [`check_no_connection_fields`]. The rest is refused here as with
//! HTTP/1. A head that passes looks like one of HTTP/1: `Host` instead of `:authority`, one `Cookie`, a target that is
//! only a path.

use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::limits::{MAX_HEAD_BYTES, MAX_HEADERS};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::ext::Protocol;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_KEY, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, Uri, uri};

/// The headers that are for a connection of HTTP/1, each with its name in the log.
const OF_CONNECTIONS: [(HeaderName, &str); 5] = [
    (CONNECTION, "Connection"),
    (TRANSFER_ENCODING, "Transfer-Encoding"),
    (UPGRADE, "Upgrade"),
    (HeaderName::from_static("keep-alive"), "Keep-Alive"),
    (HeaderName::from_static("proxy-connection"), "Proxy-Connection"),
];

/// Whether the head has no header of an HTTP/1 connection (RFC 9114, 4.2).
///
/// # Errors
/// The header that it has.
pub fn check_no_connection_fields(headers: &HeaderMap) -> Result<(), HeadRefusal> {
    for (name, refused) in OF_CONNECTIONS {
        if headers.contains_key(name) {
            return Err(HeadRefusal::Bad(refused));
        }
    }
    match headers.get(TE) {
        Some(te) if !te.as_bytes().eq_ignore_ascii_case(b"trailers") => Err(HeadRefusal::Bad("TE")),
        _ => Ok(()),
    }
}

/// Whether the client waits for a `100 Continue` before it sends its body.
pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Gives the head the form that all versions share.
///
/// # Errors
/// Why it is refused.
pub fn normalise(head: &mut Parts) -> Result<(), HeadRefusal> {
    check_size(head)?;
    if head.uri.scheme().is_some_and(|scheme| *scheme != uri::Scheme::HTTP && *scheme != uri::Scheme::HTTPS) {
        return Err(HeadRefusal::Bad("the target's scheme"));
    }
    let mut lengths = head.headers.get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (Some(_), Some(_)) => return Err(HeadRefusal::Bad("more than one Content-Length")),
        (Some(length), None) if !is_length(length.as_bytes().trim_ascii()) => {
            return Err(HeadRefusal::Bad("Content-Length"));
        }
        _ => {}
    }
    trim(&mut head.headers);
    join_cookies(&mut head.headers);
    match head.extensions.get::<Protocol>().map(Protocol::as_str) {
        None if head.method == Method::CONNECT => return Ok(()),
        None => {}
        Some("websocket") => ask_for_websocket(head)?,
        Some(_) => return Err(HeadRefusal::Unknown),
    }
    take_authority(head)?;
    let path = head.uri.path_and_query().cloned();
    head.uri = path.map(Uri::from).ok_or(HeadRefusal::Bad("the path"))?;
    Ok(())
}

/// h2 has refused other lengths; h3 leaves them to us.
fn is_length(length: &[u8]) -> bool {
    length.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(length).is_ok_and(|length| length.parse::<u64>().is_ok())
}

fn check_size(head: &Parts) -> Result<(), HeadRefusal> {
    // A longer target is no `Uri`: h2 has reset its stream.
    let target = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let headers: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if head.headers.len() > MAX_HEADERS || target + authority + headers > MAX_HEAD_BYTES {
        return Err(HeadRefusal::HeadTooLarge);
    }
    Ok(())
}

/// The form of a request for a WebSocket in HTTP/1: applications and upstreams know no other one (RFC 8441, 5).
fn ask_for_websocket(head: &mut Parts) -> Result<(), HeadRefusal> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|_| HeadRefusal::Bad("Sec-WebSocket-Key"))?;
    let key = HeaderValue::from_str(&STANDARD.encode(key)).map_err(|_| HeadRefusal::Bad("Sec-WebSocket-Key"))?;
    head.method = Method::GET;
    head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    head.headers.insert(SEC_WEBSOCKET_KEY, key);
    Ok(())
}

/// `Host` becomes what `:authority` is: all programs behind howdah must see the same host.
fn take_authority(head: &mut Parts) -> Result<(), HeadRefusal> {
    let Some(authority) = head.uri.authority() else { return Ok(()) };
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => {}
        (Some(host), None) if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {}
        (Some(_), None) => return Err(HeadRefusal::Bad("Host and :authority")),
        (Some(_), Some(_)) => return Err(HeadRefusal::Bad("more than one Host")),
    }
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| HeadRefusal::Bad(":authority"))?;
    head.headers.insert(HOST, host);
    Ok(())
}

/// As every reader of HTTP/1 does.
fn trim(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let trimmed = value.as_bytes().trim_ascii();
        if trimmed.len() != value.len()
            && let Ok(trimmed) = HeaderValue::from_bytes(trimmed)
        {
            *value = trimmed;
        }
    }
}

/// A client may send each cookie in a header of its own (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) {
        let all: Vec<_> = [first, second].into_iter().chain(crumbs).map(HeaderValue::as_bytes).collect();
        if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            headers.insert(COOKIE, joined);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn of(target: &str, headers: &[(&str, &str)]) -> Result<Vec<String>, HeadRefusal> {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        normalise(&mut head)?;
        let headers = head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        Ok([head.uri.to_string()].into_iter().chain(headers).collect())
    }

    #[test]
    fn a_head_gets_the_form_of_http_1() {
        let head = of("https://A:81/b?c", &[("cookie", "a=b"), ("x", " y\t"), ("cookie", "c=d")]);
        assert_eq!(head.unwrap(), ["/b?c", "cookie: a=b; c=d", "x: y", "host: A:81"]);
        assert_eq!(of("/b", &[("host", "a")]).unwrap(), ["/b", "host: a"]);
        assert_eq!(of("https://a/", &[("host", "A")]).unwrap(), ["/", "host: a"]);
    }

    #[test]
    fn headers_of_connections_are_refused() {
        let check = |name: &'static str, value| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            check_no_connection_fields(&headers)
        };
        for (name, _) in &OF_CONNECTIONS {
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("x"))]);
            assert!(check_no_connection_fields(&headers).is_err(), "{name}");
        }
        assert_eq!(check("te", "gzip"), Err(HeadRefusal::Bad("TE")));
        assert_eq!((check("te", "trailers"), check("x", "y")), (Ok(()), Ok(())));
    }

    #[test]
    fn an_ambiguous_head_is_refused() {
        let bad = |what| Err(HeadRefusal::Bad(what));
        assert_eq!(of("https://a/", &[("host", "b")]), bad("Host and :authority"));
        assert_eq!(of("https://a/", &[("host", "a"), ("host", "a")]), bad("more than one Host"));
        assert_eq!(of("ftp://a/", &[]), bad("the target's scheme"));
        let lengths = [("content-length", "1"), ("content-length", "1")];
        assert_eq!(of("https://a/", &lengths), bad("more than one Content-Length"));
        for length in ["", "+1", "-1", "0x1", "1.0", "1, 1", "1a", "18446744073709551616"] {
            assert_eq!(of("https://a/", &[("content-length", length)]), bad("Content-Length"), "{length}");
        }
        assert!(of("https://a/", &[("content-length", "007")]).is_ok());
    }

    #[test]
    fn a_large_head_is_refused() {
        let path = format!("https://a/{}", "x".repeat(MAX_HEAD_BYTES - 20));
        assert_eq!(of(&path, &[("x", "0123456789 0123456789 0123456789")]), Err(HeadRefusal::HeadTooLarge));
        assert_eq!(of("https://a/", &[("x", &"y".repeat(MAX_HEAD_BYTES - 5))]), Err(HeadRefusal::HeadTooLarge));
        assert!(of("https://a/", &[("x", &"y".repeat(MAX_HEAD_BYTES - 100))]).is_ok());
        let names: Vec<_> = (0..=MAX_HEADERS).map(|n| format!("x{n}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(of("https://a/", &headers), Err(HeadRefusal::HeadTooLarge));
        assert!(of("https://a/", &headers[1..]).is_ok());
    }
}
