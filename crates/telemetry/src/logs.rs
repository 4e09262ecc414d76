//! Log records: lines of howdah's logs on their way to a collector, through the pipe of the spans.
//!
//! A line that is too long for a frame is cut, and its record has the attribute `howdah.cut`. Texts of clients are values
//! only.

use crate::frames::{Encoded, MAX_CONTENT_BYTES};
use crate::messages::{AnyValue, KeyValue, LogRecord, ScopeLogs, Value};
use crate::pipe::{Lost, with_writer};
use crate::signal::Signal;
use howdah_protocol::plain_text::beginning;
use prost::Message;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

/// A line of a log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// When it happened.
    pub time: SystemTime,
    /// How bad it is.
    pub severity: Severity,
    /// The line itself.
    pub text: String,
    /// Attributes.
    pub attributes: Vec<KeyValue>,
    /// The trace of its request, in hexadecimal digits.
    pub trace: Option<String>,
}

/// How bad it is, with OpenTelemetry's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// For those who look for a fault.
    Debug = 5,
    /// Information.
    Info = 9,
    /// A warning.
    Warn = 13,
    /// An error.
    Error = 17,
}

/// The longest lines that are tried: the attributes take the rest of a frame.
const TEXT_LIMITS: [usize; 4] = [3072, 2048, 1024, 256];
/// The longest value of an attribute.
const MAX_VALUE_BYTES: usize = 512;
const MAX_ATTRIBUTES: usize = 12;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Lines that no thread of a router has counted.
static RECORDED: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Whether lines are sent, from now on.
pub fn set_on(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Whether lines are sent.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Sends a line, without waiting.
///
/// # Errors
/// When there is no room for it: it is lost.
pub fn send(line: &LogLine) -> Result<(), Lost> {
    let encoded = TEXT_LIMITS.iter().map(|limit| line.encoded(*limit)).find(|e| e.len() <= MAX_CONTENT_BYTES);
    let encoded = Encoded { signal: Signal::Logs, count: 1, encoded: encoded.ok_or(Lost::TooLong)? };
    with_writer(|writer| writer.write(&encoded)).unwrap_or(Err(Lost::Full))
}

/// Counts a line for [`counts`].
pub fn count(sent: Result<(), Lost>) {
    RECORDED.fetch_add(1, Ordering::Relaxed);
    LOST.fetch_add(u64::from(sent.is_err()), Ordering::Relaxed);
}

/// How many lines of this process were recorded and lost, as far as [`count`] has counted them.
pub fn counts() -> (u64, u64) {
    (RECORDED.load(Ordering::Relaxed), LOST.load(Ordering::Relaxed))
}

// === impl LogLine ===

impl LogLine {
    fn encoded(&self, limit: usize) -> Vec<u8> {
        let time = self.time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let text = beginning(&self.text, limit);
        let mut attributes: Vec<_> = self.attributes.iter().take(MAX_ATTRIBUTES).cloned().map(short).collect();
        if text.len() < self.text.len() {
            attributes.push(KeyValue::bool("howdah.cut", true));
        }
        let trace = self.trace.as_deref().and_then(|trace| u128::from_str_radix(trace, 16).ok());
        let record = LogRecord {
            time_unix_nano: time,
            severity_number: self.severity as i32,
            severity_text: self.severity.name().to_owned(),
            body: Some(AnyValue { value: Some(Value::Text(text.to_owned())) }),
            attributes,
            trace_id: trace.map(|trace| trace.to_be_bytes().to_vec()).unwrap_or_default(),
            observed_time_unix_nano: time,
        };
        ScopeLogs { scope: None, log_records: vec![record] }.encode_to_vec()
    }
}

fn short(mut attribute: KeyValue) -> KeyValue {
    if let Some(AnyValue { value: Some(Value::Text(text)) }) = &mut attribute.value
        && text.len() > MAX_VALUE_BYTES
    {
        *text = beginning(text, MAX_VALUE_BYTES).to_owned();
    }
    attribute
}

// === impl Severity ===

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Debug => "DEBUG",
            Severity::Info => "INFO",
            Severity::Warn => "WARN",
            Severity::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, attributes: Vec<KeyValue>) -> LogLine {
        let trace = Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned());
        LogLine { time: SystemTime::now(), severity: Severity::Warn, text: text.to_owned(), attributes, trace }
    }

    fn decoded(line: &LogLine) -> LogRecord {
        let encoded = TEXT_LIMITS.iter().map(|limit| line.encoded(*limit)).find(|e| e.len() <= MAX_CONTENT_BYTES);
        let mut scope = ScopeLogs::decode(encoded.expect("it fits").as_slice()).expect("a message");
        scope.log_records.remove(0)
    }

    #[test]
    fn a_line_is_a_record_with_its_trace() {
        let hostile = "/\0\n\u{1b}[2J<script>";
        let record = decoded(&line(hostile, vec![KeyValue::text("howdah.application", "shop")]));
        assert_eq!(record.body.and_then(|body| body.value), Some(Value::Text(hostile.to_owned())));
        assert_eq!((record.trace_id.len(), record.trace_id[0], record.severity_number), (16, 0x4b, 13));
        assert_eq!(record.attributes, [KeyValue::text("howdah.application", "shop")]);
    }

    #[test]
    fn a_long_line_is_cut_and_marked() {
        let long = "ü".repeat(5000);
        let attributes: Vec<_> = (0..40).map(|n| KeyValue::text(&n.to_string(), long.as_str())).collect();
        assert_eq!(send(&line(&long, attributes)), Err(Lost::TooLong), "twelve long attributes leave no room");
        let record = decoded(&line(&long, vec![KeyValue::text("uri", long.as_str())]));
        assert_eq!(record.attributes[1], KeyValue::bool("howdah.cut", true));
        let Some(Value::Text(text)) = record.body.and_then(|body| body.value) else { panic!("no text") };
        assert!(text.len() >= 2048 && long.starts_with(&text));
    }
}
