//! The messages of the journal of systemd, in its native protocol: fields with names, whose values may be any bytes.
//!
//! A line of the access log that is a JSON object becomes one field for each member. Clients choose values only: names are
//! howdah's and the configuration's.

use crate::record::Record;
use crate::text::cut;
use howdah_protocol::plain_text::plain;
use serde_json::{Map, Value};

/// The longest value. A message has few of this length, and a datagram may have 200 KiB by default.
pub const LIMIT: usize = 32 * 1024;
const MAX_FIELDS: usize = 64;
/// The longest name that the journal takes.
const MAX_NAME_BYTES: usize = 64;
/// A field cannot set those of the journal itself, which begin with `_`, nor `MESSAGE`.
const PREFIX: &str = "HOWDAH_";

/// The message of a record, whose values are at most this long.
pub fn message(record: &Record, limit: usize) -> Vec<u8> {
    let members = members(record).unwrap_or_default();
    let mut message = Vec::with_capacity(256 + record.bytes());
    let text = summary(&members).unwrap_or_else(|| record.text.clone());
    put(&mut message, "MESSAGE", &cut(&text, limit));
    put(&mut message, "PRIORITY", &(record.severity as u8).to_string());
    put(&mut message, "SYSLOG_IDENTIFIER", "howdah");
    put(&mut message, "HOWDAH_LOG", record.log.id());
    let is_new = |name: &str| !members.contains_key(name);
    let fields =
        record.fields.iter().filter(|(name, _)| is_new(name)).map(|(name, value)| (name.as_ref(), value.clone()));
    let of_members = members.iter().filter_map(|(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some((name.as_str(), text.clone())),
        other => Some((name.as_str(), other.to_string())),
    });
    for (name, value) in fields.chain(of_members).take(MAX_FIELDS) {
        put(&mut message, &field_name(name), &cut(&value, limit));
    }
    message
}

/// The members of a line that is a JSON object.
fn members(record: &Record) -> Option<Map<String, Value>> {
    record.text.starts_with('{').then(|| serde_json::from_str(&record.text).ok()).flatten()
}

/// A short text for a request: `journalctl` shows it. `None` if the line has other members than usual.
fn summary(members: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| members.get(name)?.as_str();
    if let Some(message) = text("message") {
        return Some(plain(message));
    }
    let (method, uri, status) = (text("method")?, text("uri")?, members.get("status")?);
    Some(plain(&format!("{method} {uri} {status}")))
}

fn field_name(name: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    PREFIX.chars().chain(name.chars().map(known)).take(MAX_NAME_BYTES).collect()
}

/// A value with control characters is written with its length: it may have a line break.
fn put(message: &mut Vec<u8>, name: &str, value: &str) {
    message.extend_from_slice(name.as_bytes());
    if value.contains(char::is_control) {
        message.push(b'\n');
        message.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        message.push(b'=');
    }
    message.extend_from_slice(value.as_bytes());
    message.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::record::Severity;

    /// The fields of a message, as the journal reads them.
    fn fields(mut message: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let mut fields = Vec::new();
        while !message.is_empty() {
            let end = message.iter().position(|byte| *byte == b'\n').expect("the end of a line");
            let (line, rest) = (&message[..end], &message[end + 1..]);
            match line.iter().position(|byte| *byte == b'=') {
                Some(at) => {
                    fields.push((text(&line[..at]), text(&line[at + 1..])));
                    message = rest;
                }
                None => {
                    let length = u64::from_le_bytes(rest[..8].try_into().expect("8 bytes")) as usize;
                    fields.push((text(line), text(&rest[8..8 + length])));
                    assert_eq!(rest[8 + length], b'\n');
                    message = &rest[9 + length..];
                }
            }
        }
        fields
    }

    fn record(text: &str, given: &[(&'static str, &str)]) -> Record {
        let mut record = Record::new(Severity::Error, Log::Error, text.to_owned());
        record.fields = given.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
        record
    }

    fn pairs(all: &[(String, String)]) -> Vec<(&str, &str)> {
        all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    #[test]
    fn values_of_clients_are_only_values() {
        let hostile = "/a\nPRIORITY=0\n_PID=1\0\u{1b}[2J";
        let found = fields(&message(&record(hostile, &[("uri", hostile), ("a b=c\n", "=")]), LIMIT));
        let expected = [
            ("MESSAGE", hostile),
            ("PRIORITY", "3"),
            ("SYSLOG_IDENTIFIER", "howdah"),
            ("HOWDAH_LOG", "error"),
            ("HOWDAH_URI", hostile),
            ("HOWDAH_A_B_C_", "="),
        ];
        assert_eq!(pairs(&found), expected);
    }

    #[test]
    fn a_json_line_becomes_fields() {
        let line = r#"{"application":"shop","method":"GET","uri":"/\u001b","status":200,"trace_id":null,"__x":"y"}"#;
        let found = fields(&message(&record(line, &[("application", "other"), ("client", "::1")]), LIMIT));
        let expected = [
            ("MESSAGE", r"GET /\u{1b} 200"),
            ("PRIORITY", "3"),
            ("SYSLOG_IDENTIFIER", "howdah"),
            ("HOWDAH_LOG", "error"),
            ("HOWDAH_CLIENT", "::1"),
            ("HOWDAH_APPLICATION", "shop"),
            ("HOWDAH_METHOD", "GET"),
            ("HOWDAH_URI", "/\u{1b}"),
            ("HOWDAH_STATUS", "200"),
            ("HOWDAH___X", "y"),
        ];
        let sorted = |mut pairs: Vec<(&'static str, &'static str)>| {
            pairs.sort_unstable();
            pairs
        };
        let mut found = pairs(&found);
        found.sort_unstable();
        assert_eq!(found, sorted(expected.into()));
    }

    #[test]
    fn long_values_are_cut() {
        let long = "x".repeat(100_000);
        let found = fields(&message(&record(&long, &[("uri", &long)]), 1000));
        assert!(found.iter().all(|(_, value)| value.len() <= 1000));
        assert!(found[0].1.ends_with(" more bytes]"));
    }
}
