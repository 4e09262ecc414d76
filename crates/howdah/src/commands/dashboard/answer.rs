//! An answer to the browser, with the headers that every answer has.

use crate::control_client::ApiResponse;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    content_type: &'static str,
    body: Bytes,
    /// The value of `Set-Cookie`.
    cookie: Option<String>,
}

/// The page loads nothing from elsewhere, runs no script that is not ours, sends no form, and is in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HEADERS: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

// === impl Answer ===

impl Answer {
    /// A file of the page.
    pub fn file(content_type: &'static str, body: &'static [u8]) -> Answer {
        Answer { status: StatusCode::OK, content_type, body: Bytes::from_static(body), cookie: None }
    }

    /// A value.
    pub fn json(value: &Value) -> Answer {
        Answer::with_status(StatusCode::OK, value)
    }

    /// A value with another status.
    pub fn with_status(status: StatusCode, value: &Value) -> Answer {
        Answer { status, content_type: "application/json", body: value.to_string().into(), cookie: None }
    }

    /// The same, with a cookie.
    pub fn with_cookie(self, cookie: String) -> Answer {
        Answer { cookie: Some(cookie), ..self }
    }

    /// An error, with the reason for the person at the browser.
    pub fn error(status: StatusCode, reason: &str) -> Answer {
        Answer::with_status(status, &json!({ "error": reason }))
    }

    /// The control API cannot be reached.
    pub fn unreachable(reason: &str) -> Answer {
        Answer::error(StatusCode::BAD_GATEWAY, reason)
    }

    /// A refusal of the control API, with its status. `text` is the configuration that was sent.
    pub fn refusal(response: &ApiResponse, text: &str) -> Option<Answer> {
        let rejection = response.rejection()?;
        let status = StatusCode::from_u16(response.status()).unwrap_or(StatusCode::BAD_GATEWAY);
        Some(Answer::with_status(status, &rejection.json_in(text)))
    }

    /// For hyper.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(cookie) = self.cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
            headers.insert(SET_COOKIE, cookie);
        }
        response
    }
}
