//! The head of a CGI response (RFC 3875, 6): the status is a header, and the web server writes those of the connection.

use crate::protocols::connection::framing::{drop_framing, set_length};
use bytes::BytesMut;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Body;

/// Appends a head for this body.
pub fn write(out: &mut BytesMut, status: StatusCode, headers: &mut HeaderMap, body: &impl Body, method: &Method) {
    drop_framing(headers);
    set_length(headers, status, body, method);
    out.extend_from_slice(b"Status: ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(status.canonical_reason().unwrap_or("Unknown").as_bytes());
    for (name, value) in &*headers {
        // Some web servers pass names on as they are.
        let mut begins_word = true;
        out.extend_from_slice(b"\r\n");
        for byte in name.as_str().bytes() {
            out.extend_from_slice(&[if begins_word { byte.to_ascii_uppercase() } else { byte }]);
            begins_word = byte == b'-';
        }
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(b"\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[test]
    fn a_head_has_the_status_and_the_length_and_nothing_about_connections() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-powered-by", "PHP"), ("connection", "close"), ("transfer-encoding", "chunked")] {
            headers.insert(name, value.parse().unwrap());
        }
        let mut out = BytesMut::new();
        write(&mut out, StatusCode::NOT_FOUND, &mut headers, &Full::new(&b"hello"[..]), &Method::GET);
        assert_eq!(out, "Status: 404 Not Found\r\nX-Powered-By: PHP\r\nContent-Length: 5\r\n\r\n");
    }

    #[test]
    fn an_unusual_status_has_a_reason() {
        let mut out = BytesMut::new();
        let status = StatusCode::from_u16(299).unwrap();
        write(&mut out, status, &mut HeaderMap::new(), &Full::new(&b""[..]), &Method::HEAD);
        assert_eq!(out, "Status: 299 Unknown\r\n\r\n");
    }
}
