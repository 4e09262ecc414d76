//! An answer of the control API.

use howdah_config::{Document, Refusal, answer};
use howdah_metrics::exposition::Format;
use howdah_metrics::exposition::format::content_type;

/// An answer: JSON, or bytes of an application.
#[derive(Debug)]
pub struct ApiAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// The `Content-Type` of the body.
    pub content_type: &'static str,
    /// The configuration's ETag.
    pub etag: Option<String>,
}

// === impl ApiAnswer ===

impl ApiAnswer {
    /// A success, with this text.
    pub fn success(text: &str) -> ApiAnswer {
        ApiAnswer::json(200, answer::success(text))
    }

    /// A document.
    pub fn document(document: &Document) -> ApiAnswer {
        ApiAnswer::json(200, document.pretty())
    }

    /// Bytes of an application.
    pub fn bytes(body: Vec<u8>) -> ApiAnswer {
        ApiAnswer { status: 200, body, content_type: "application/octet-stream", etag: None }
    }

    /// An exposition.
    pub fn exposition(body: Vec<u8>, format: Format) -> ApiAnswer {
        ApiAnswer { status: 200, body, content_type: content_type(format), etag: None }
    }

    /// The same with an ETag.
    pub fn with_etag(self, etag: String) -> ApiAnswer {
        ApiAnswer { etag: Some(etag), ..self }
    }

    fn json(status: u16, body: String) -> ApiAnswer {
        ApiAnswer { status, body: body.into_bytes(), content_type: "application/json", etag: None }
    }
}

impl From<Refusal> for ApiAnswer {
    fn from(refusal: Refusal) -> ApiAnswer {
        ApiAnswer::json(refusal.status, refusal.to_json())
    }
}

/// No application has this name.
pub fn no_such_application(name: &str) -> Refusal {
    Refusal::new(404, answer::text::NO_SUCH_VALUE, format!("there is no application {name:?}"))
}

/// The control API has no such path.
pub fn no_such_path() -> Refusal {
    let detail = "howdah answers below /config, /certificates, /status, /metrics and /control/applications";
    Refusal::new(404, answer::text::NO_SUCH_VALUE, detail)
}
