//! Responses without content of their own: the action `return`, and redirects from a folder to its index.

use crate::response::failure;
use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Response, StatusCode, Uri};
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

/// The same target with a slash after its path.
///
/// It keeps the client's spelling, and never names another host: browsers take a `Location` that begins with two
/// slashes, or backslashes, for one. `None` for a target that cannot be in a header.
pub fn folder_location(uri: &Uri) -> Option<HeaderValue> {
    let path = uri.path().trim_start_matches(['/', '\\']).replace('\\', "%5C");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::from_bytes(format!("/{path}/{query}").as_bytes()).ok()
}
