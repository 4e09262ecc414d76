//! A server of an upstream, or an application: it drains, or gets requests again.

use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::howdah::{Howdah, accepted};
use crate::commands::drain::{application_path, change_path, servers_path};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

/// The change.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DrainRequest {
    Server(ServerRequest),
    Application(ApplicationRequest),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerRequest {
    upstream: String,
    /// Its address.
    server: String,
    drain: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationRequest {
    application: String,
    drain: bool,
}

/// Drains the server or the application, or ends that.
///
/// # Errors
/// The answer for the page.
pub async fn drain(howdah: &Howdah, body: &[u8]) -> Result<Answer, Answer> {
    let bad_request = |reason: &str| Answer::error(StatusCode::BAD_REQUEST, reason);
    let not_found = |reason: &str| Answer::error(StatusCode::NOT_FOUND, reason);
    let request: DrainRequest = serde_json::from_slice(body).map_err(|_| {
        bad_request("the body is not valid; write application and drain, or upstream, server and drain")
    })?;
    let (path, etag, drains) = match request {
        DrainRequest::Server(ServerRequest { upstream, server, drain }) => {
            let path = servers_path(&upstream).map_err(|reason| bad_request(&reason))?;
            let servers = accepted(howdah.read(&path).await)?;
            let (path, etag) = change_path(&upstream, &server, &servers).map_err(|reason| not_found(&reason))?;
            (path, etag, drain)
        }
        DrainRequest::Application(ApplicationRequest { application, drain }) => {
            let path = application_path(&application).map_err(|reason| bad_request(&reason))?;
            let found = accepted(howdah.read(&path).await)?;
            (format!("{path}/drain"), found.etag, drain)
        }
    };
    let response = accepted(howdah.change("PUT", &path, etag.as_deref(), drains.to_string().into_bytes()).await)?;
    Ok(Answer::json(&json!({ "success": response.message().trim_end() })))
}
