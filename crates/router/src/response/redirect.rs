//! Responses without content of their own: the action `return`, redirects from a folder to its index, and the question
//! for a password.

use crate::response::failure::{self, Failure};
use bytes::Bytes;
use http::header::{HeaderValue, LOCATION, WWW_AUTHENTICATE};
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

/// 401: the client asks its user for a name and a password of this realm, which has no quotes.
///
/// # Errors
/// For a realm that cannot be in a header. The configuration has none.
pub fn ask_for_password(realm: &str) -> Result<Response<Bytes>, Failure> {
    let challenge = HeaderValue::from_str(&format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    let mut response = failure::page(StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge.map_err(|_| Failure::Internal)?);
    Ok(response)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_location_of_a_folder_keeps_the_spelling_and_never_leaves_the_host() {
        let table = [
            ("/a", Some("/a/")),
            ("/a?b=c&d=%2F", Some("/a/?b=c&d=%2F")),
            ("/a?", Some("/a/?")),
            ("/a%20b/%C3%A9", Some("/a%20b/%C3%A9/")),
            ("/a+b", Some("/a+b/")),
            ("//evil.example/..", Some("/evil.example/../")),
            ("///evil.example/%2e%2e", Some("/evil.example/%2e%2e/")),
            ("/\\evil.example", Some("/evil.example/")),
            ("/\\/evil.example/../a", Some("/evil.example/../a/")),
            ("/a\\b", Some("/a%5Cb/")),
            ("/a/?b", None),
            ("/a\r\nX: y", None),
        ];
        for (target, expected) in table {
            let location = folder_location(target);
            assert_eq!(location.as_ref().map(|location| location.to_str().unwrap()), expected, "{target}");
        }
    }
}
