//! Answers of the control API, in NGINX Unit's form: `{"success": …}`, or `{"error": …, "detail": …, "location":
//! {"offset": …, "line": …, "column": …}}`.
//!
//! `error` is one of a few short texts on which clients may depend; [`text`] has those of Unit. `detail` is for people.
//! An answer is pretty JSON with CRLF at its end, like every answer of Unit.

use std::fmt;

use indexmap::IndexMap;

use crate::error::{Error, Location};
use crate::json::JsonValue;
use crate::json::print;

/// Unit's short texts, the values of `success` and `error`.
pub mod text {
    /// 200: the configuration is active.
    pub const RECONFIGURED: &str = "Reconfiguration done.";
    /// 200: an application was restarted.
    pub const RESTARTED: &str = "Ok";
    /// 200: a certificate was stored.
    pub const CERTIFICATE_UPLOADED: &str = "Certificate chain uploaded.";
    /// 200: a certificate was deleted.
    pub const CERTIFICATE_DELETED: &str = "Certificate deleted.";

    /// 400: the name of a certificate is empty or has a slash.
    pub const INVALID_CERTIFICATE_NAME: &str = "Invalid certificate name.";
    /// 400: the body is not a certificate chain with its key.
    pub const INVALID_CERTIFICATE: &str = "Invalid certificate.";
    /// 400: a listener names the certificate.
    pub const CERTIFICATE_IN_USE: &str = "Certificate is used in the configuration.";
    /// 404: the path does not exist in the configuration or in the API.
    pub const NO_SUCH_VALUE: &str = "Value doesn't exist.";
    /// 404: there is no certificate with this name.
    pub const NO_SUCH_CERTIFICATE: &str = "Certificate doesn't exist.";
    /// 404 below `/status` and within a certificate; 400 for a malformed path (Unit has no such answer).
    pub const INVALID_PATH: &str = "Invalid path.";
    /// 405 below `/config` and `/control`.
    pub const METHOD_NOT_ALLOWED: &str = "Method isn't allowed.";
    /// 405 for all other paths.
    pub const INVALID_METHOD: &str = "Invalid method.";
    /// 500: the configuration is valid, but it could not be activated.
    pub const NOT_APPLIED: &str = "Failed to apply new configuration.";
    /// 500: an application could not be restarted.
    pub const NOT_RESTARTED: &str = "Failed to restart app.";
    /// 500: the router did not report its status.
    pub const NO_STATUS: &str = "Failed to get status.";
    /// 500: a certificate could not be written to disk.
    pub const CERTIFICATE_NOT_STORED: &str = "Failed to store certificate.";
}

/// An error answer of the control API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// One of a few short texts: see [`text`].
    pub error: String,
    /// The problem, where it is, and what to do.
    pub detail: Option<String>,
    /// The location in the body, if that is not JSON.
    pub location: Option<Location>,
}

/// The body of a successful answer: `{"success": …}`.
pub fn success(text: &str) -> String {
    print_answer([("success", JsonValue::String(text.to_owned()))])
}

fn print_answer<const N: usize>(members: [(&str, JsonValue); N]) -> String {
    let members = members.into_iter().filter(|(_, value)| *value != JsonValue::Null);
    let object: IndexMap<_, _> = members.map(|(key, value)| (key.to_owned(), value)).collect();
    print::pretty(&JsonValue::Object(Box::new(object))) + "\r\n"
}

// === impl Refusal ===

impl Refusal {
    /// A refusal with this HTTP status, one of the short texts, and advice.
    pub fn new(status: u16, error: &str, detail: impl Into<String>) -> Self {
        Self { status, error: error.to_owned(), detail: Some(detail.into()), location: None }
    }

    pub(crate) fn no_such_value(detail: impl Into<String>) -> Self {
        Self::new(404, text::NO_SUCH_VALUE, detail)
    }

    pub(crate) fn method_not_allowed(detail: impl Into<String>) -> Self {
        Self::new(405, text::METHOD_NOT_ALLOWED, detail)
    }

    /// The body of the answer.
    pub fn to_json(&self) -> String {
        let number = |number: usize| JsonValue::Integer(i128::try_from(number).unwrap_or(i128::MAX));
        let location = self.location.map(|Location { offset, line, column }| {
            let members = [("offset", offset), ("line", line), ("column", column)];
            JsonValue::Object(Box::new(members.map(|(key, value)| (key.to_owned(), number(value))).into()))
        });
        print_answer([
            ("error", JsonValue::String(self.error.clone())),
            ("detail", self.detail.clone().map_or(JsonValue::Null, JsonValue::String)),
            ("location", location.unwrap_or(JsonValue::Null)),
        ])
    }
}

impl From<Error> for Refusal {
    /// An invalid configuration makes the request invalid: 400.
    fn from(error: Error) -> Self {
        Self { status: 400, error: error.error, detail: Some(error.detail), location: error.location }
    }
}

impl fmt::Display for Refusal {
    /// Writes one line: the short text and the detail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        if let Some(Location { line, column, .. }) = self.location {
            write!(f, " line {line}, column {column}:")?;
        }
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, " {detail}"))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    #[test]
    fn an_answer_has_units_form() {
        assert_eq!(success(text::RECONFIGURED), "{\r\n\t\"success\": \"Reconfiguration done.\"\r\n}\r\n");
        let refusal = Refusal { detail: None, ..Refusal::new(404, text::NO_SUCH_VALUE, "") };
        assert_eq!(refusal.to_json(), "{\r\n\t\"error\": \"Value doesn't exist.\"\r\n}\r\n");
    }

    #[test]
    fn a_syntax_error_has_a_location() {
        let refusal = Refusal::from(Document::parse("{\"a\": 1,\n x}").expect_err("not JSON"));
        assert_eq!(refusal.status, 400);
        assert_eq!(
            refusal.to_json(),
            "{\r\n\t\"error\": \"Invalid JSON.\",\r\n\t\"detail\": \"a key must be written in double quotes\",\r\n\
             \t\"location\": {\r\n\t\t\"offset\": 10,\r\n\t\t\"line\": 2,\r\n\t\t\"column\": 2\r\n\t}\r\n}\r\n"
        );
        assert_eq!(refusal.to_string(), "Invalid JSON. line 2, column 2: a key must be written in double quotes");
    }
}
