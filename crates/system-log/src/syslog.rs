//! The messages of syslog: RFC 5424.
//!
//! The fields are structured data. A message is one line: control characters are escaped.

use crate::record::Record;
use crate::text::cut;
use howdah_config::Syslog;
use howdah_protocol::host_name;
use howdah_protocol::plain_text::plain;
use jiff::Timestamp;

/// The longest message: the receivers' default (RFC 5425 and rsyslog).
pub const LIMIT: usize = 8192;
/// The name of the structured data. howdah has no number of its own; this one is IANA's for examples (RFC 5612).
const DATA: &str = "howdah@32473";
const MAX_FIELDS: usize = 32;
const MAX_NAME_BYTES: usize = 32;
/// The longest value in the structured data.
const MAX_VALUE_BYTES: usize = 512;
/// The longest structured data.
const MAX_DATA_BYTES: usize = 4096;
/// A message without it.
const NIL: &str = "-";

/// The message of a record.
pub fn message(syslog: &Syslog, record: &Record, limit: usize) -> Vec<u8> {
    let priority = u32::from(syslog.facility) * 8 + record.severity as u32;
    let time = Timestamp::try_from(record.time).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
    let host = if host_name().is_empty() { NIL } else { host_name() };
    let (tag, pid, log) = (&syslog.tag, std::process::id(), record.log.id());
    let mut message = format!("<{priority}>1 {time} {host} {tag} {pid} {log} ");
    message += &structured_data(record, limit.saturating_sub(message.len()).min(MAX_DATA_BYTES));
    message.push(' ');
    let room = limit.saturating_sub(message.len());
    // An escaped text is never shorter: the beginning is enough.
    message += &cut(&plain(&record.text), room);
    message.into_bytes()
}

fn structured_data(record: &Record, room: usize) -> String {
    let mut data = format!("[{DATA}");
    for (name, value) in record.fields.iter().take(MAX_FIELDS) {
        let mut pair = String::from(" ");
        pair.extend(name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(MAX_NAME_BYTES));
        if pair.len() == 1 {
            continue;
        }
        pair += "=\"";
        for c in cut(&plain(value), MAX_VALUE_BYTES).chars() {
            if matches!(c, '"' | '\\' | ']') {
                pair.push('\\');
            }
            pair.push(c);
        }
        pair.push('"');
        if data.len() + pair.len() < room {
            data += &pair;
        }
    }
    if data.len() == DATA.len() + 1 {
        return NIL.to_owned();
    }
    data.push(']');
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::record::Severity;
    use howdah_config::SyslogServer;
    use std::time::{Duration, UNIX_EPOCH};

    fn syslog() -> Syslog {
        Syslog { server: SyslogServer::Unix("/dev/log".into()), facility: 19, tag: "shop".to_owned() }
    }

    fn written(text: &str, fields: &[(&'static str, &str)]) -> String {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
        let time = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let record = Record { time, severity: Severity::Warning, log: Log::Error, text: text.to_owned(), fields };
        let message = String::from_utf8(message(&syslog(), &record, LIMIT)).expect("UTF-8");
        assert!(message.len() <= LIMIT, "{}", message.len());
        message.replace(host_name(), "HOST").replace(&std::process::id().to_string(), "PID")
    }

    #[test]
    fn a_message_has_the_form_of_rfc_5424() {
        let expected = "<156>1 2023-11-14T22:13:20.123456Z HOST shop PID error [howdah@32473 application=\"a\"] text";
        assert_eq!(written("text", &[("application", "a")]), expected);
        assert!(written("text", &[]).ends_with(" error - text"));
    }

    #[test]
    fn values_of_clients_cannot_leave_their_place() {
        let message = written("a\n<0>1 b\0\u{1b}[2J\u{202e}", &[("uri", "/\"] [x y=\"\n\\"), ("\"]", "no name")]);
        let end = r#"[howdah@32473 uri="/\"\] [x y=\"\\n\\"] a\n<0>1 b\u{0}\u{1b}[2J\u{202e}"#;
        assert!(message.ends_with(end), "{message}");
        assert!(!message.contains(char::is_control));
    }

    #[test]
    fn a_long_message_keeps_its_ids_and_notes_what_is_missing() {
        let long = "x".repeat(9000);
        let uris: Vec<_> = (0..40).map(|_| ("uri", long.as_str())).collect();
        let message = written(&"\n".repeat(9000), &[&[("trace_id", "1")], uris.as_slice()].concat());
        assert!(message.contains(" trace_id=\"1\" uri=\"xxx") && message.ends_with(" more bytes]"), "{message}");
    }
}
