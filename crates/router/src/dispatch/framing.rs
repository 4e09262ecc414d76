//! The headers that hyper adds to a response: the access log reports them as if they were in the response already.

use crate::protocols::connection::framing::has_option;
use crate::request::subject::ResponseFraming;
use http::header::{CONTENT_LENGTH, DATE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use hyper::body::Body;

/// The headers that hyper will add to this response. A web server in front gets its length only.
pub fn of<B: Body>(request: &Parts, response: &Response<B>, is_behind_web_server: bool) -> ResponseFraming {
    let is_framed = !matches!(
        response.status(),
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    let is_head = request.method == Method::HEAD;
    let exact = response.body().size_hint().exact();
    // An empty body in the response to HEAD may be one that was never made.
    let length = exact.filter(|length| is_framed && !(is_head && *length == 0));
    if is_behind_web_server {
        return ResponseFraming { content_length: length, ..ResponseFraming::default() };
    }
    let is_chunked = is_framed
        && !is_head
        && length.is_none()
        && request.version == Version::HTTP_11
        && !response.headers().contains_key(CONTENT_LENGTH);
    ResponseFraming {
        content_length: length,
        connection: connection(request, response.headers()),
        transfer_encoding: is_chunked.then_some("chunked"),
        has_date: !response.headers().contains_key(DATE),
    }
}

/// HTTP/1.1 announces the end of a connection, HTTP/1.0 that the connection stays, and later versions nothing.
fn connection(request: &Parts, response: &HeaderMap) -> Option<&'static str> {
    let closes = has_option(response, "close");
    match request.version {
        Version::HTTP_10 => (!closes && has_option(&request.headers, "keep-alive")).then_some("keep-alive"),
        Version::HTTP_2 | Version::HTTP_3 => None,
        _ => (closes || has_option(&request.headers, "close")).then_some("close"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Request;
    use http::header::CONNECTION;
    use http_body_util::Full;

    fn framing(method: &str, version: Version, connection: &str, status: u16) -> ResponseFraming {
        let request = Request::builder().method(method).version(version).header(CONNECTION, connection);
        let (request, ()) = request.body(()).unwrap().into_parts();
        let response = Response::builder().status(status).body(Full::new(Bytes::from_static(b"hello"))).unwrap();
        of(&request, &response, false)
    }

    #[test]
    fn the_length_is_that_of_the_body() {
        assert_eq!(framing("GET", Version::HTTP_11, "x", 200).content_length, Some(5));
        assert_eq!(framing("HEAD", Version::HTTP_11, "x", 200).content_length, Some(5));
        assert_eq!(framing("GET", Version::HTTP_11, "x", 204).content_length, None);
        assert_eq!(framing("GET", Version::HTTP_11, "x", 304).content_length, None);
        assert!(framing("GET", Version::HTTP_11, "x", 200).has_date);
    }

    #[test]
    fn the_connection_is_named_only_if_it_is_unusual() {
        let table = [
            (Version::HTTP_11, "x", None),
            (Version::HTTP_11, "keep-alive", None),
            (Version::HTTP_11, "x, Close", Some("close")),
            (Version::HTTP_2, "close", None),
            (Version::HTTP_10, "x", None),
            (Version::HTTP_10, "Keep-Alive", Some("keep-alive")),
        ];
        for (version, connection, expected) in table {
            assert_eq!(framing("GET", version, connection, 200).connection, expected, "{version:?} {connection}");
        }
    }
}
