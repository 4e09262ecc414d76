//! A response of the control API.

use crate::rejection::{Rejection, SourceText};
use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::Value;

/// A response of the control API.
#[derive(Debug)]
pub struct ApiResponse {
    pub(super) status: StatusCode,
    /// The configuration's ETag, if the response is about the configuration.
    pub etag: Option<String>,
    /// The body as text, with line feeds instead of CRLF.
    pub body: String,
    /// The body as it was received.
    pub bytes: Bytes,
}

// === impl ApiResponse ===

impl ApiResponse {
    /// Itself, if its status is a success. `source` is the text that was sent.
    ///
    /// # Errors
    /// The reason of the rejection, with its position in the source.
    pub fn accepted(self, source: Option<&SourceText>) -> Result<ApiResponse, String> {
        match self.rejection() {
            None => Ok(self),
            Some(rejection) => Err(rejection.describe(source)),
        }
    }

    /// The reason why howdah rejected the request; `None` for a success.
    pub fn rejection(&self) -> Option<Rejection> {
        if self.status.is_success() {
            return None;
        }
        let found = serde_json::from_str(&self.body).ok().and_then(|body: Value| Rejection::of_json(&body));
        Some(found.unwrap_or_else(|| {
            Rejection::new(format!("The response is {}: this is not howdah's control API.", self.status))
        }))
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_str(&self.body)
            .map_err(|_| "the response is not JSON: this is not howdah's control API".to_owned())
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// Whether the configuration has changed since the ETag of the request.
    pub fn is_precondition_failed(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED
    }

    /// Whether howdah has no object at this path.
    pub fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The message of a success.
    pub fn message(&self) -> String {
        let body: Option<Value> = serde_json::from_str(&self.body).ok();
        let text = body.as_ref().and_then(|body| body.get("success")?.as_str());
        text.map_or_else(|| self.body.clone(), |text| format!("{text}\n"))
    }
}
