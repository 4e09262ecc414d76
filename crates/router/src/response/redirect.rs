//! Responses without content of their own: the action `return`, and redirects from a folder to its index.

use crate::response::failure;
use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;

/// A response with this status, and with this `Location` if there is one.
pub fn redirect(status: StatusCode, location: Option<HeaderValue>) -> Response<Bytes> {
    // As with NGINX Unit: only an error has a page.
    let mut response = match status.as_u16() {
        400..=599 => failure::page(status),
        _ => Response::new(Bytes::new()),
    };
    *response.status_mut() = status;
    if status.canonical_reason().is_none() {
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Unknown"));
    }
    if let Some(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The target of a request with a slash after its path: where a folder without its slash is redirected.
///
/// The `Location` never names another host: browsers take one that begins with two slashes, or backslashes, for one.
/// `None` for a path with the slash, and for a target that cannot be in a header.
pub fn folder_location(target: &str) -> Option<HeaderValue> {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    if path.ends_with('/') {
        return None;
    }
    let path = path.trim_start_matches(['/', '\\']).replace('\\', "%5C");
    HeaderValue::from_bytes(format!("/{path}/{query}").as_bytes()).ok()
}
