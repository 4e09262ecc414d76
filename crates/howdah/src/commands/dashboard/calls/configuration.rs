//! The configuration: read, checked here, applied by howdah. Also the certificates.

use crate::commands::dashboard::answer::Answer;
use crate::commands::dashboard::calls::howdah::{Howdah, accepted};
use crate::rejection::Rejection;
use howdah_config::{Configuration, Document};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

/// A text to apply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyRequest {
    text: String,
    /// Of the configuration that the user has edited.
    etag: String,
}

/// The text, and its ETag.
///
/// # Errors
/// The answer for the page.
pub async fn read(howdah: &Howdah) -> Result<Answer, Answer> {
    let response = accepted(howdah.read("/config").await)?;
    Ok(Answer::json(&json!({ "text": response.body, "etag": response.etag })))
}

/// Checks a text, like `howdah config check`. The answer has the position of an error.
pub fn check(text: &[u8]) -> Answer {
    let checked = Document::parse_bytes(text).and_then(|document| Configuration::of(&document));
    Answer::json(&match checked {
        Ok(configuration) => {
            let warnings: Vec<_> = configuration.warnings.iter().map(ToString::to_string).collect();
            json!({ "valid": true, "warnings": warnings })
        }
        Err(error) => {
            let mut value = Rejection::from(error).json_in(&String::from_utf8_lossy(text));
            value["valid"] = json!(false);
            value
        }
    })
}

/// Applies a text, unless the configuration was changed since the user has read it.
///
/// # Errors
/// The answer for the page, with the position of an error in the text.
pub async fn apply(howdah: &Howdah, body: &[u8]) -> Result<Answer, Answer> {
    let request: ApplyRequest = serde_json::from_slice(body).map_err(|error| {
        Answer::error(StatusCode::BAD_REQUEST, &format!("the body is not valid: {error}; write text and etag"))
    })?;
    let response = howdah.change("PUT", "/config", Some(&request.etag), request.text.clone().into_bytes()).await;
    let response = response.map_err(|reason| Answer::unreachable(&reason))?;
    match Answer::refusal(&response, &request.text) {
        Some(refusal) => Err(refusal),
        None => Ok(Answer::json(&json!({ "success": response.message().trim_end() }))),
    }
}

/// The certificates, without their keys.
///
/// # Errors
/// The answer for the page.
pub async fn certificates(howdah: &Howdah) -> Result<Answer, Answer> {
    let value: Value =
        accepted(howdah.read("/certificates").await)?.json().map_err(|reason| Answer::unreachable(&reason))?;
    Ok(Answer::json(&value))
}
