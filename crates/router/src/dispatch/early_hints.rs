//! `early_hints`: links of an action that a browser gets in a 103 response while the application works (RFC 8297).
//!
//! Browsers follow them for pages that they navigate to only. They are added to the response, too, for clients that
//! ignore interim responses.

use crate::request::clock::RequestClock;
use http::header::{HeaderName, HeaderValue, LINK};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

/// Shows whether a browser navigates; other clients do not send it.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Sends the links before the response.
pub fn send(links: &[String], request: &Parts, clock: &RequestClock) {
    let mode = || request.headers.get(SEC_FETCH_MODE);
    if links.is_empty() || request.method != Method::GET || mode().is_some_and(|mode| mode != "navigate") {
        return;
    }
    let headers = values(links).map(|value| (LINK, value)).collect::<HeaderMap>();
    clock.inform(StatusCode::EARLY_HINTS, &headers);
}

/// Adds the links to a successful response.
pub fn add_to<B>(response: &mut Response<B>, links: &[String]) {
    if response.status().is_success() {
        for value in values(links) {
            // A response of an application may have too many headers.
            let _ = response.headers_mut().try_append(LINK, value);
        }
    }
}

fn values(links: &[String]) -> impl Iterator<Item = HeaderValue> {
    links.iter().filter_map(|link| HeaderValue::from_str(link).ok())
}
