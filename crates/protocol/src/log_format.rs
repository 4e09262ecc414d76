//! The form of all log lines: text, or one JSON object a line. `howdah serve --log-format json` and `howdah run` pass it
//! to the supervisor and the router in the environment; a prototype gets it in its boot message.

use crate::plain_text::{plain, plain_lines, short, without_fields};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The environment variable with the format.
pub const LOG_FORMAT_VARIABLE: &str = "HOWDAH_LOG_FORMAT";

/// The environment variable with the log daemon of howdah's own messages, in the form of the configuration; without it they
/// are written to standard error.
pub const LOG_DAEMON_VARIABLE: &str = "HOWDAH_LOG_DAEMON";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormat {
    /// Time, level, message, and fields: `name="text"`, or `name=1`. In the message, a double quote behind `=` is `\"`.
    #[default]
    Text,
    /// A JSON object with `time`, `level`, `message` and the fields.
    Json,
}

/// A message of PHP with what it is about.
#[derive(Clone, Copy, Debug)]
pub struct PhpMessage<'a> {
    /// The time, like `2026-01-31T12:00:00.123Z`.
    pub time: &'a str,
    /// `ERROR`, `WARN` or `INFO`.
    pub level: &'a str,
    /// The application's name.
    pub application: &'a str,
    /// The method and the URI of the request; `None` outside of requests.
    pub request: Option<(&'a str, &'a str)>,
    /// PHP's own text, perhaps of several lines, and with values of clients.
    pub text: &'a str,
}

// === impl LogFormat ===

impl LogFormat {
    /// The format of this process's environment.
    pub fn of_environment() -> LogFormat {
        match std::env::var(LOG_FORMAT_VARIABLE).as_deref() {
            Ok("json") => LogFormat::Json,
            _ => LogFormat::Text,
        }
    }

    /// The value of the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }

    /// The line of a message of PHP, without a line break at its end. Of a text of several lines, all but the first are
    /// indented.
    pub fn php_line(self, message: &PhpMessage<'_>) -> String {
        let PhpMessage { time, level, application, request, text } = *message;
        match self {
            LogFormat::Text => {
                let mut message = String::new();
                if let Some((method, uri)) = request {
                    let _ = write!(message, " {} {}", plain(method), plain(&short(uri)));
                }
                let message = message + ": " + &plain_lines(text);
                format!("{time} {level:>5} {application:?}{}", without_fields(&message))
            }
            LogFormat::Json => {
                let mut line = serde_json::json!({
                    "time": time,
                    "level": level,
                    "message": text,
                    "application": application,
                });
                if let Some((method, uri)) = request {
                    line["method"] = method.into();
                    line["uri"] = short(uri).into();
                }
                line.to_string()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_php_has_its_application_and_its_request() {
        let message = PhpMessage {
            time: "2026-01-31T12:00:00.123Z",
            level: "WARN",
            application: "shop",
            request: Some(("GET", "/report?a=1")),
            text: "PHP Warning:  one\ntwo",
        };
        assert_eq!(
            LogFormat::Text.php_line(&message),
            "2026-01-31T12:00:00.123Z  WARN \"shop\" GET /report?a=1: PHP Warning:  one\n    two"
        );
        let line: serde_json::Value = serde_json::from_str(&LogFormat::Json.php_line(&message)).unwrap();
        assert_eq!(line["message"], "PHP Warning:  one\ntwo");
        assert_eq!((&line["application"], &line["method"]), (&"shop".into(), &"GET".into()));
        let outside = PhpMessage { request: None, ..message };
        assert!(LogFormat::Text.php_line(&outside).contains("\"shop\": PHP"));
        assert!(!LogFormat::Json.php_line(&outside).contains("uri"));
    }

    #[test]
    fn a_client_adds_no_field_to_a_message_of_php() {
        let message = PhpMessage {
            time: "2026-01-31T12:00:00.123Z",
            level: "INFO",
            application: "shop",
            request: Some(("GET", r#"/x"client="6.6.6.6""#)),
            text: r#"no user a" client="6.6.6.6" "#,
        };
        assert_eq!(
            LogFormat::Text.php_line(&message),
            r#"2026-01-31T12:00:00.123Z  INFO "shop" GET /x"client=\"6.6.6.6": no user a" client=\"6.6.6.6" "#
        );
        assert!(LogFormat::Json.php_line(&message).contains(r#"no user a\" client=\"6.6.6.6\" "#));
    }
}
