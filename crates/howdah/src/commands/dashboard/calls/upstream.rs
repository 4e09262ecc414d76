//! A server of an upstream: it drains, or gets requests again.

use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::howdah::{Howdah, accepted};
use crate::commands::drain::{change_path, servers_path};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// The change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    upstream: String,
    /// Its address.
    server: String,
    drain: bool,
}

/// Drains the server, or ends that.
///
/// # Errors
/// The answer for the page.
pub async fn drain(howdah: &Howdah, body: &[u8]) -> Result<Answer, Answer> {
    let bad_request = |reason: &str| Answer::error(StatusCode::BAD_REQUEST, reason);
    let request: DrainRequest = serde_json::from_slice(body)
        .map_err(|error| bad_request(&format!("the body is not valid: {error}; write upstream, server and drain")))?;
    let path = servers_path(&request.upstream).map_err(|reason| bad_request(&reason))?;
    let servers = accepted(howdah.read(&path).await)?;
    let changed = change_path(&request.upstream, &request.server, &servers);
    let (path, etag) = changed.map_err(|reason| Answer::error(StatusCode::NOT_FOUND, &reason))?;
    let value = request.drain.to_string().into_bytes();
    let response = accepted(howdah.change("PUT", &path, etag.as_deref(), value).await)?;
    Ok(Answer::json(&json!({ "success": response.message().trim_end() })))
}
