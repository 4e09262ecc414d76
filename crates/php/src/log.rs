//! Lines on standard error, where PHP's own messages go, too. A line that cannot be written is lost.
//!
//! Once the application is started, a message of PHP is a line with time, level, application and request. Before that it
//! is only text: the supervisor collects it for the answer about the start.

#![allow(unsafe_code)] // calls C

use crate::sapi;
use howdah_protocol::log_format::{LogFormat, PhpMessage};
use howdah_protocol::plain_text::without_fields;
use std::sync::OnceLock;

/// The application of this process, and the form of its lines.
static APPLICATION: OnceLock<(String, LogFormat)> = OnceLock::new();

/// The levels of syslog up to which a message of PHP is an error, or a warning.
const LOG_ERR: i32 = 3;
const LOG_WARNING: i32 = 4;

/// The application is started: from now on its messages are whole lines.
pub fn begin(application: &str, format: LogFormat) {
    let _ = APPLICATION.set((application.to_owned(), format));
}

/// Whether lines are JSON objects.
pub fn is_json() -> bool {
    matches!(APPLICATION.get(), Some((_, LogFormat::Json)))
}

/// Writes one line. It takes no lock: a script may fork this process while another thread writes.
pub fn write(message: &str) {
    let line = format!("{}\n", message.trim_end());
    let mut left = line.as_bytes();
    while !left.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), left) {
            Ok(0) => return,
            Ok(written) => left = &left[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Writes a message of PHP with its level of syslog, and the method and the URI of the request during which PHP reported
/// it.
pub fn write_php(text: &str, syslog_level: i32, request: Option<(&str, &str)>) {
    let Some((application, format)) = APPLICATION.get() else { return write(text) };
    let level = match syslog_level {
        ..=LOG_ERR => "ERROR",
        LOG_WARNING => "WARN",
        _ => "INFO",
    };
    // The query may contain secrets.
    let request = request.map(|(method, uri)| (method, uri.split('?').next().unwrap_or_default()));
    write(&format.php_line(&PhpMessage { time: &now(), level, application, request, text: text.trim_end() }));
}

/// Writes a warning of a worker or a prototype.
pub fn warn(message: &str) {
    match APPLICATION.get() {
        Some((application, LogFormat::Json)) => {
            let message = PhpMessage { time: &now(), level: "WARN", application, request: None, text: message };
            write(&LogFormat::Json.php_line(&message));
        }
        _ => write(&format!("{}  WARN {}", now(), without_fields(message))),
    }
}

/// The present time, in the supervisor's format.
fn now() -> String {
    let mut bytes = [0; 64];
    let mut text = sapi::Text { bytes: bytes.as_mut_ptr(), room: bytes.len(), len: 0 };
    // SAFETY: `room` is the length of `bytes`, which outlives the call; C counts in `len` what it writes.
    unsafe { sapi::howdah_text_time(&raw mut text) };
    String::from_utf8_lossy(&bytes[..text.len]).into_owned()
}
