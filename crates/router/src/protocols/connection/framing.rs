//! The headers that mark the end of a message, for protocols in which records or frames mark it; and the options of
//! `Connection`, with which HTTP/1 marks the end of a connection.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST,
    HeaderName, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Body;

/// The headers that are for a connection of HTTP/1 (RFC 9113, 8.2.2): a client refuses a response that has one.
const OF_CONNECTIONS: [HeaderName; 6] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The headers that a recipient needs before the body, or that change who it trusts (RFC 9110, 6.5.1). hyper drops the same
/// ones from the trailers of HTTP/1.
const NOT_IN_TRAILERS: [HeaderName; 10] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    MAX_FORWARDS,
    SET_COOKIE,
    TRAILER,
];

/// The length of the body, if the head has it.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Answers 500 in the place of a status that is no final one.
pub fn make_final(status: &mut StatusCode) {
    if status.is_informational() {
        tracing::error!(status = status.as_u16(), "a response with this status is no final one: answered 500");
        *status = StatusCode::INTERNAL_SERVER_ERROR;
    }
}

/// Whether a response to this method has a body.
pub fn has_body(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Whether `Connection` has this option; case is ignored.
pub fn has_option(headers: &HeaderMap, option: &str) -> bool {
    list_members(headers, CONNECTION).any(|other| other.eq_ignore_ascii_case(option.as_bytes()))
}

/// The members of a header that is a list, without the spaces around them.
pub fn list_members(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
}

/// Drops the headers that are for a connection of HTTP/1.
pub fn drop_framing(headers: &mut HeaderMap) {
    for name in &OF_CONNECTIONS {
        headers.remove(name);
    }
}

/// Drops the headers that trailers may not have.
pub fn drop_from_trailers(trailers: &mut HeaderMap) {
    drop_framing(trailers);
    for name in &NOT_IN_TRAILERS {
        trailers.remove(name);
    }
}

/// Adds the length of the body, if it is known.
pub fn set_length(headers: &mut HeaderMap, status: StatusCode, body: &impl Body, method: &Method) {
    if status == StatusCode::NO_CONTENT {
        headers.remove(CONTENT_LENGTH);
    } else if status != StatusCode::NOT_MODIFIED
        && let Some(length) = body.size_hint().exact()
        // An empty body in the response to HEAD may be one that was never made.
        && !(*method == Method::HEAD && length == 0)
    {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn some_responses_have_no_body() {
        assert!(!has_body(&Method::HEAD, StatusCode::OK) && !has_body(&Method::GET, StatusCode::NO_CONTENT));
        assert!(has_body(&Method::POST, StatusCode::OK));
    }
    #[test]
    fn options_are_found_regardless_of_case() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive, UPGRADE"));
        assert!(has_option(&headers, "upgrade") && has_option(&headers, "Keep-Alive"));
        assert!(!has_option(&headers, "up"));
    }
}
