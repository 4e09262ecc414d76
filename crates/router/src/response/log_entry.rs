//! An entry of the access log: the configured format, filled in with a request and its response.
//!
//! The entry is made when the head of the response is known, and written when its body has ended. The values that are
//! known only then (`$body_bytes_sent`, `$request_time`) are left open until then. A client cannot forge a line: quotes,
//! control characters and invisible marks in values are escaped. Neither can a client or a script write long lines into a
//! log that all applications share: their values are cut.

use crate::report::send_log_line;
use crate::request::local_time;
use crate::response::access_log::{AccessLogWriter, LineFields};
use howdah_config::{AccessLog, LogFormat, RequestView, Template, TemplatePart, TemplateVariable, Variables};
use howdah_protocol::plain_text::{beginning, is_mark};
use howdah_telemetry::logs::{self, LogLine, Severity};
use howdah_telemetry::messages::KeyValue;
use http::StatusCode;
use memchr::memchr2_iter;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// The access log of a configuration, and the thread's writer for it.
#[derive(Clone, Copy)]
pub struct LogSink<'a> {
    /// Which requests are logged, and how.
    pub settings: &'a AccessLog,
    /// The thread's log.
    pub writer: &'a Rc<RefCell<AccessLogWriter>>,
}

/// A line that waits for the end of its response.
pub struct LogEntry {
    /// With marks for the values that are not known yet.
    line: String,
    since: Instant,
    /// How many bytes of the response's body were sent.
    pub body_bytes: u64,
    /// The fields that a log daemon gets beside the line.
    fields: LineFields,
    writer: Rc<RefCell<AccessLogWriter>>,
}

/// Marks in a line. No value contains them: they are control characters, which are escaped.
const BODY_BYTES: u8 = 1;
const REQUEST_TIME: u8 = 2;

/// The longest value of a client, in bytes: as other servers limit a line of a request's head.
const LONGEST_OF_CLIENT: usize = 8 * 1024;
/// The longest value of a script or an upstream, in bytes. The head of its response may have a megabyte.
const LONGEST_OF_RESPONSE: usize = 1024;
/// The most bytes of all these values in one line, with their escape sequences.
const LONGEST_LINE: usize = 64 * 1024;
/// The most bytes that replace one byte: `\u0009`.
const LONGEST_ESCAPE: usize = 6;
/// The end of a value that was cut.
const CUT: &str = "...";

// === impl LogSink ===

impl LogSink<'_> {
    /// The entry of a request that began at `since`; `None` if the log's condition does not hold.
    pub fn entry<V: Variables>(self, variables: &V, since: Instant) -> Option<Box<LogEntry>> {
        if self.settings.condition.as_ref().is_some_and(|condition| !condition.holds(variables)) {
            return None;
        }
        Some(Box::new(self.fill_in(variables, since)))
    }

    /// Whether a request with this status is not logged.
    pub fn skips<R: RequestView>(self, request: impl FnOnce() -> R, status: StatusCode) -> bool {
        !self.settings.skip.is_empty() && self.settings.skip.matches(&request(), status.as_u16())
    }

    /// The entry of bytes that were not a request, and were answered with this status. Conditions do not hold for it.
    pub fn entry_without_request(self, remote_addr: &str, status: StatusCode) -> Option<Box<LogEntry>> {
        let no_request = NoRequest { remote_addr, status };
        self.settings.condition.is_none().then(|| Box::new(self.fill_in(&no_request, Instant::now())))
    }

    fn fill_in(self, variables: &dyn Variables, since: Instant) -> LogEntry {
        let line = line(&self.settings.format, variables);
        let has_fields = self.writer.borrow().takes_fields() || logs::is_on();
        let fields = if has_fields { fields(variables) } else { LineFields::new() };
        LogEntry { line, since, body_bytes: 0, fields, writer: Rc::clone(self.writer) }
    }
}

// === impl LogEntry ===

impl LogEntry {
    /// Appends the line to the thread's log.
    pub fn write(&self) {
        let mut line = String::with_capacity(self.line.len() + 16);
        let mut written = 0;
        for mark in memchr2_iter(BODY_BYTES, REQUEST_TIME, self.line.as_bytes()) {
            line.push_str(&self.line[written..mark]);
            let _ = match self.line.as_bytes()[mark] {
                BODY_BYTES => write!(line, "{}", self.body_bytes),
                _ => write!(line, "{:.3}", self.since.elapsed().as_secs_f64()),
            };
            written = mark + 1;
        }
        line.push_str(&self.line[written..]);
        if logs::is_on() {
            send_log_line(&self.for_collector(&line));
        }
        self.writer.borrow_mut().append(&line, &self.fields);
    }

    /// The line for the collector of `settings/telemetry`.
    fn for_collector(&self, line: &str) -> LogLine {
        let attribute = |(name, value): &(Cow<'static, str>, String)| match name.as_ref() {
            TRACE_ID => None,
            STATUS => value.parse().ok().map(|status| KeyValue::int("http.response.status_code", status)),
            name => Some(KeyValue::text(&format!("howdah.{name}"), value.as_str())),
        };
        let mut attributes = vec![KeyValue::text("howdah.log", "access")];
        attributes.extend(self.fields.iter().filter_map(attribute));
        let trace = self.fields.iter().find(|(name, _)| name == TRACE_ID).map(|(_, id)| id.clone());
        LogLine { time: SystemTime::now(), severity: Severity::Info, text: line.to_owned(), attributes, trace }
    }
}

/// The fields that a log daemon or a collector gets beside the line, whatever its format.
const FIELDS: [(&str, TemplateVariable); 4] = [
    ("application", TemplateVariable::Application),
    ("request_id", TemplateVariable::RequestId),
    (TRACE_ID, TemplateVariable::TraceId),
    (STATUS, TemplateVariable::Status),
];
const TRACE_ID: &str = "trace_id";
const STATUS: &str = "status";

fn fields(variables: &dyn Variables) -> LineFields {
    let field = |(name, variable): &(&'static str, TemplateVariable)| {
        let mut value = String::new();
        (variables.write(variable, &mut value) && !value.is_empty()).then_some(((*name).into(), value))
    };
    FIELDS.iter().filter_map(field).collect()
}

/// The line, with marks.
fn line(format: &LogFormat, variables: &dyn Variables) -> String {
    match format {
        LogFormat::Text(template) => render(template, &Escaped::new(variables, escape_text)),
        LogFormat::Json(members) => json(members, variables),
        LogFormat::Standard(members) => standard_json(members, variables),
    }
}

fn json(members: &[(String, Template)], variables: &dyn Variables) -> String {
    let variables = Escaped::new(variables, escape_json);
    let mut line = "{".to_owned();
    for (n, (name, template)) in members.iter().enumerate() {
        if n > 0 {
            line.push(',');
        }
        line.push('"');
        escape_json(name, &mut line);
        line.push_str("\":\"");
        // Constant parts need escapes, too.
        template.parts().for_each(|part| match part {
            TemplatePart::Literal(text) => escape_json(text, &mut line),
            TemplatePart::Variable(variable) => {
                let _ = variables.write(variable, &mut line);
            }
        });
        line.push('"');
    }
    line.push('}');
    line
}

/// The object with stable names: numbers are numbers, and absent values are null.
fn standard_json(members: &[(String, Template)], variables: &dyn Variables) -> String {
    let variables = Escaped::new(variables, escape_json);
    let mut line = String::with_capacity(512);
    for (name, template) in members {
        line.push(if line.is_empty() { '{' } else { ',' });
        // The names are known: they need no escapes.
        let _ = write!(line, "\"{name}\":");
        for part in template.parts() {
            let TemplatePart::Variable(variable) = part else { continue };
            let is_number = matches!(
                variable,
                TemplateVariable::Status | TemplateVariable::BodyBytesSent | TemplateVariable::RequestTime
            );
            let begin = line.len();
            line.push('"');
            if !variables.write(variable, &mut line) {
                line.truncate(begin);
                line.push_str("null");
            } else if is_number {
                line.remove(begin);
            } else {
                line.push('"');
            }
        }
    }
    line.push('}');
    line
}

fn render(template: &Template, variables: &Escaped<'_>) -> String {
    let mut line = String::with_capacity(256);
    template.write(variables, &mut line);
    line
}

/// Cuts and escapes values for a line; an absent value becomes `-`.
struct Escaped<'v> {
    variables: &'v dyn Variables,
    escape: fn(&str, &mut String),
    /// How many bytes further values of clients and scripts may have.
    room: Cell<usize>,
}

// === impl Escaped ===

impl<'v> Escaped<'v> {
    fn new(variables: &'v dyn Variables, escape: fn(&str, &mut String)) -> Escaped<'v> {
        Escaped { variables, escape, room: Cell::new(LONGEST_LINE) }
    }

    /// Appends the beginning of a value of a client or a script, which has at most this number of bytes.
    fn append_cut(&self, value: &str, longest: usize, out: &mut String) {
        let room = self.room.get();
        let of_line = if is_plain(value) { room } else { room / LONGEST_ESCAPE };
        let begin = out.len();
        let cut = beginning(value, longest.min(of_line));
        (self.escape)(cut, out);
        self.room.set(room.saturating_sub(out.len() - begin));
        if cut.len() < value.len() {
            out.push_str(CUT);
        }
    }
}

impl Variables for Escaped<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
        thread_local! {
            /// Reused, so that a value costs no allocation.
            static VALUE: Cell<String> = const { Cell::new(String::new()) };
        }
        match variable {
            TemplateVariable::BodyBytesSent => {
                out.push(BODY_BYTES.into());
                return true;
            }
            TemplateVariable::RequestTime => {
                out.push(REQUEST_TIME.into());
                return true;
            }
            _ => {}
        }
        let mut value = VALUE.take();
        value.clear();
        let is_present = self.variables.write(variable, &mut value);
        match longest(variable) {
            _ if !is_present => out.push('-'),
            Some(longest) => self.append_cut(&value, longest, out),
            None => (self.escape)(&value, out),
        }
        value.shrink_to(LONGEST_OF_CLIENT);
        VALUE.set(value);
        is_present
    }
}

/// The limit of a value that a client or a script chooses.
fn longest(variable: &TemplateVariable) -> Option<usize> {
    match variable {
        TemplateVariable::ResponseHeader(_) => Some(LONGEST_OF_RESPONSE),
        TemplateVariable::Host
        | TemplateVariable::Method
        | TemplateVariable::RequestLine
        | TemplateVariable::RequestUri
        | TemplateVariable::Uri
        | TemplateVariable::Argument(_)
        | TemplateVariable::Cookie(_)
        | TemplateVariable::Header(_) => Some(LONGEST_OF_CLIENT),
        TemplateVariable::Application
        | TemplateVariable::BodyBytesSent
        | TemplateVariable::RemoteAddr
        | TemplateVariable::RemoteUser
        | TemplateVariable::RequestId
        | TemplateVariable::RequestTime
        | TemplateVariable::Status
        | TemplateVariable::TimeIso8601
        | TemplateVariable::TimeLocal
        | TemplateVariable::TraceId => None,
    }
}

struct NoRequest<'a> {
    remote_addr: &'a str,
    status: StatusCode,
}

impl Variables for NoRequest<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
        match variable {
            TemplateVariable::RemoteAddr => out.push_str(self.remote_addr),
            TemplateVariable::Status => out.push_str(self.status.as_str()),
            TemplateVariable::TimeLocal => out.push_str(&local_time::now()),
            TemplateVariable::TimeIso8601 => out.push_str(&local_time::iso8601()),
            _ => return false,
        }
        true
    }
}

fn escape_text(text: &str, out: &mut String) {
    if is_plain(text) {
        return out.push_str(text);
    }
    for c in text.chars() {
        if c == '"' || c == '\\' || c.is_control() {
            let _ = write!(out, "\\x{:02X}", c as u32);
        } else if is_mark(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(out, "\\x{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
}

/// Whether a text is ASCII, as nearly all values are, and needs no escape.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\')
}

/// RFC 8259, 7.
fn escape_json(text: &str, out: &mut String) {
    if is_plain(text) {
        return out.push_str(text);
    }
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || is_mark(c) => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    struct Hostile;

    impl Variables for Hostile {
        fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
            match variable {
                TemplateVariable::Uri => out.push_str("/a\"b\nc\\\u{1}\u{2}\u{202e}"),
                TemplateVariable::Status => out.push_str("200"),
                // Present and empty.
                TemplateVariable::Method => {}
                _ => return false,
            }
            true
        }
    }

    /// All values but the status are this text.
    struct Long(String);

    impl Variables for Long {
        fn write(&self, variable: &TemplateVariable, out: &mut String) -> bool {
            out.push_str(if *variable == TemplateVariable::Status { "200" } else { &self.0 });
            true
        }
    }

    fn filled_in(format: &str) -> String {
        filled_in_with(format, &Hostile)
    }

    fn filled_in_with(format: &str, variables: &dyn Variables) -> String {
        let text = format!(r#"{{"access_log": {{"path": "-", "format": {format}}}}}"#);
        let log = Configuration::parse(&text).unwrap().access_log.unwrap();
        line(&log.format, variables)
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        assert_eq!(filled_in(r#""$status \"$uri\" $host""#), "200 \"/a\\x22b\\x0Ac\\x5C\\x01\\x02\\xE2\\x80\\xAE\" -");
    }

    #[test]
    fn a_long_value_of_a_client_or_a_script_is_cut() {
        let long = Long("ü".repeat(450_000));
        for (format, longest) in [
            (r#""$response_header_content_type""#, LONGEST_OF_RESPONSE),
            (r#""$header_user_agent""#, LONGEST_OF_CLIENT),
            (r#""$request_line""#, LONGEST_OF_CLIENT),
            (r#""$cookie_a""#, LONGEST_OF_CLIENT),
        ] {
            let expected = format!("{}...", "ü".repeat(longest / 2));
            assert_eq!(filled_in_with(format, &long), expected, "{format}");
        }
        let whole = "x".repeat(LONGEST_OF_RESPONSE);
        assert_eq!(filled_in_with(r#""$response_header_a $arg_b""#, &Long(whole.clone())), format!("{whole} {whole}"));
    }

    #[test]
    fn a_line_is_short_also_with_escape_sequences() {
        // Plain text, and characters that have escape sequences.
        for value in ["x", "\"", "\t", "\u{feff}", "\u{fffd}"] {
            let value = Long(value.repeat(300_000));
            let many = "$uri $host $arg_a $arg_b $header_a $header_b $cookie_a $cookie_b $response_header_a ".repeat(9);
            for format in [format!(r#""{many}""#), format!(r#"{{"all": "{many}"}}"#)] {
                let line = filled_in_with(&format, &value);
                assert!(line.len() < LONGEST_LINE + 2 * many.len(), "{} bytes", line.len());
                assert!(line.len() > LONGEST_LINE / 2, "{} bytes", line.len());
            }
        }
    }

    #[test]
    fn a_line_of_long_values_is_json_with_numbers() {
        let line = filled_in_with(r#""json""#, &Long("\u{fffd}\"".repeat(300_000)));
        let line = line.replace(char::from(BODY_BYTES), "5").replace(char::from(REQUEST_TIME), "0.001");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["status"], 200);
        assert!(value["content_type"].as_str().unwrap().ends_with("..."));
    }

    #[test]
    fn an_absent_value_is_a_hyphen_and_an_empty_one_is_empty() {
        assert_eq!(filled_in(r#""[$host] [$method]""#), "[-] []");
    }

    #[test]
    fn a_json_line_is_json() {
        let line =
            filled_in(r#"{"u\"ri": "<$uri>", "bytes": "$body_bytes_sent", "time": "$request_time", "host": "$host"}"#);
        let line = line.replace(char::from(BODY_BYTES), "5").replace(char::from(REQUEST_TIME), "0.001");
        let expected = "{\"u\\\"ri\":\"</a\\\"b\\u000ac\\\\\\u0001\\u0002\\u202e>\",\"bytes\":\"5\",\"time\":\"0.001\",\"host\":\"-\"}";
        assert_eq!(line, expected);
    }

    #[test]
    fn the_line_with_stable_names_has_numbers_and_null() {
        let line =
            filled_in(r#""json""#).replace(char::from(BODY_BYTES), "5").replace(char::from(REQUEST_TIME), "0.001");
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&value["status"], &value["body_bytes"]), (&200.into(), &5.into()), "{line}");
        assert_eq!((&value["seconds"], &value["method"]), (&0.001.into(), &"".into()));
        assert_eq!((&value["host"], &value["trace_id"]), (&serde_json::Value::Null, &serde_json::Value::Null));
        assert!(line.starts_with("{\"time\":null,\"application\":null,"), "{line}");
    }
}
