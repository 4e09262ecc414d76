//! The form of a log line: text, or a JSON object, each with the request that the thread works on.
//!
//! Text: `2026-01-31T12:00:00.123456Z  WARN message field="value" method="GET" uri="/" client="127.0.0.1"`, with colours on a
//! terminal. JSON: `{"time": …, "level": …, "message": …}` and the fields.
//!
//! A text in a field is in quotes, and [no message](without_fields) has `name="`: with values of clients, neither adds a field.
//!
//! With a log daemon, the text is without time and level, and the fields of the event and of the request are fields of the
//! daemon's message. An application's own log gets its lines nevertheless, and the warnings about the daemon itself are on
//! standard error.
//!
//! Control characters are escaped, and long values are cut: they come from clients. A message of the supervisor may have several
//! lines, of which all but the first are indented, and [more bytes](LONGEST_MESSAGE): it may contain the output of an application.

use crate::diagnostics::destination::application_log;
use crate::terminal::plain::plain;
use howdah_router::{current_request_fields, send_log_line};
use howdah_supervisor::LogFormat;
use howdah_supervisor::plain_text::{cut, plain_and_short, plain_json, plain_lines, short, without_fields};
use howdah_system_log::SystemLog;
use howdah_system_log::log::Log;
use howdah_system_log::record::{Record, Severity};
use howdah_telemetry::logs::{self, LogLine};
use howdah_telemetry::messages::KeyValue;
use serde_json::{Map, Value};
use std::fmt::{self, Debug, Display, Write as _};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes log lines in one of the forms.
pub struct LineFormat {
    format: LogFormat,
    daemon: Option<Arc<SystemLog>>,
}

/// The fields of an event as text.
struct TextFields {
    text: String,
    /// The message may have several lines: it is the supervisor's.
    has_lines: bool,
    has_colours: bool,
}

/// The fields of an event as members of a JSON object.
struct Members {
    all: Map<String, Value>,
    /// The message may have several lines: it is the supervisor's.
    has_lines: bool,
}

/// The members of a line for a receiver that has places of its own for its message, time and level.
struct Content {
    message: String,
    fields: Vec<(String, String)>,
}

/// Members for which the messages of daemons and collectors have places of their own.
const OF_RECEIVER: [&str; 2] = ["time", "level"];
/// The field of a line's text.
const MESSAGE: &str = "message";
/// The longest message of the supervisor, in bytes. Applications have a part in some of them.
const LONGEST_MESSAGE: usize = 16 * 1024;
/// The beginning of the targets of the router's lines.
const ROUTER: &str = "howdah_router";

// === impl LineFormat ===

impl LineFormat {
    /// The form that the command line chose for all processes, with the daemon that gets the lines.
    pub fn of_environment(daemon: Option<Arc<SystemLog>>) -> LineFormat {
        LineFormat { format: LogFormat::of_environment(), daemon }
    }

    /// The daemon that gets this line.
    fn daemon_of(&self, event: &Event<'_>) -> Option<&SystemLog> {
        let is_about_daemon = event.metadata().target().starts_with(howdah_system_log::TARGET);
        self.daemon.as_deref().filter(|_| !is_about_daemon && application_log(event.metadata()).is_none())
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = event.metadata().level();
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        // A line that names the application itself is about another one, or about several requests.
        let is_new = |name: &str| event.metadata().fields().field(name).is_none();
        let request = current_request_fields().into_iter().filter(|(name, _)| is_new(name));
        let request: Vec<_> = request.collect();
        let members = || members(event, &time, &request);
        if logs::is_on() {
            send_log_line(&for_collector(*level, Content::of(members())));
        }
        if let Some(daemon) = self.daemon_of(event) {
            daemon.push(match self.format {
                LogFormat::Text => record(*level, text(event, &request, false), Content::of(members())),
                LogFormat::Json => record(*level, json(members()), Content::of(members())),
            });
            return Ok(());
        }
        match self.format {
            LogFormat::Text => {
                // Only a terminal gets colours.
                let has_colours = application_log(event.metadata()).is_none() && writer.has_ansi_escapes();
                match has_colours {
                    true => write!(writer, "\x1b[2m{time}\x1b[0m \x1b[{}m{level:>5}\x1b[0m ", colour(level))?,
                    false => write!(writer, "{time} {level:>5} ")?,
                }
                writeln!(writer, "{}", text(event, &request, has_colours))
            }
            LogFormat::Json => writeln!(writer, "{}", json(members())),
        }
    }
}

fn json(members: Map<String, Value>) -> String {
    plain_json(Value::Object(members).to_string())
}

/// The fields of the event and of the request as text.
fn text(event: &Event<'_>, request: &[(&'static str, String)], has_colours: bool) -> String {
    let mut text = TextFields::of(event, has_colours).text;
    for (name, value) in request {
        let _ = write!(text, " {name}={:?}", short(value));
    }
    text
}

/// The members of a JSON line.
fn members(event: &Event<'_>, time: &str, request: &[(&'static str, String)]) -> Map<String, Value> {
    let mut members = Members { all: Map::new(), has_lines: !is_of_router(event) };
    members.all.insert("time".to_owned(), time.into());
    members.all.insert("level".to_owned(), event.metadata().level().as_str().into());
    event.record(&mut members);
    members.all.extend(request.iter().map(|(name, value)| ((*name).to_owned(), short(value).into())));
    members.all
}

/// The line for the collector of `settings/telemetry`.
fn for_collector(level: Level, content: Content) -> LogLine {
    let severity = match level {
        Level::ERROR => logs::Severity::Error,
        Level::WARN => logs::Severity::Warn,
        Level::INFO => logs::Severity::Info,
        Level::DEBUG | Level::TRACE => logs::Severity::Debug,
    };
    let Content { message, mut fields } = content;
    let trace = fields.iter().position(|(name, _)| name == "trace_id").map(|at| fields.remove(at).1);
    let own = [KeyValue::text("howdah.log", Log::Error.id())];
    let fields = fields.into_iter().map(|(name, value)| KeyValue::text(&format!("howdah.{name}"), value));
    let attributes = own.into_iter().chain(fields).collect();
    LogLine { time: std::time::SystemTime::now(), severity, text: message, attributes, trace }
}

/// A line for a log daemon.
fn record(level: Level, text: String, content: Content) -> Record {
    let severity = match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    };
    let fields = content.fields.into_iter().map(|(name, value)| (name.into(), value));
    Record { fields: fields.collect(), ..Record::new(severity, Log::Error, text) }
}

// === impl Content ===

impl Content {
    fn of(members: Map<String, Value>) -> Content {
        let text_of = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let mut content = Content { message: String::new(), fields: Vec::with_capacity(members.len()) };
        for (name, value) in members {
            match name.as_str() {
                MESSAGE => content.message = text_of(value),
                name if OF_RECEIVER.contains(&name) => {}
                _ => content.fields.push((name, text_of(value))),
            }
        }
        content
    }
}

// === impl TextFields ===

impl TextFields {
    fn of(event: &Event<'_>, has_colours: bool) -> TextFields {
        let has_lines = !is_of_router(event);
        let mut fields = TextFields { text: String::new(), has_lines, has_colours };
        event.record(&mut fields);
        fields
    }

    /// `value` is in quotes, if it is a text.
    fn add(&mut self, field: &Field, value: impl Display) {
        let separator = if self.text.is_empty() { "" } else { " " };
        let name = field.name();
        let _ = match self.has_colours {
            true => write!(self.text, "{separator}\x1b[3m{name}\x1b[0m={value}"),
            false => write!(self.text, "{separator}{name}={value}"),
        };
    }
}

impl Visit for TextFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => {
                let separator = if self.text.is_empty() { "" } else { " " };
                let message = match self.has_lines {
                    // An escape sequence is longer than its character.
                    true => cut(&plain_lines(&cut(value, LONGEST_MESSAGE)), LONGEST_MESSAGE).into_owned(),
                    false => plain_and_short(value),
                };
                let _ = write!(self.text, "{separator}{}", without_fields(&message));
            }
            _ => self.add(field, plain(&format!("{:?}", short(value)))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Whether it is a message of the router, which has texts of clients and scripts.
fn is_of_router(event: &Event<'_>) -> bool {
    event.metadata().target().starts_with(ROUTER)
}

/// The number of a colour in an escape sequence of ECMA-48.
fn colour(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

impl Members {
    fn add(&mut self, field: &Field, value: Value) {
        self.all.insert(field.name().to_owned(), value);
    }
}

impl Visit for Members {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let may_be_long = self.has_lines && field.name() == MESSAGE;
        let value = if may_be_long { cut(value, LONGEST_MESSAGE) } else { short(value) };
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Mutex;
    use tracing_subscriber::prelude::*;

    /// The line of an event without its time.
    fn line(format: LogFormat, log: impl FnOnce()) -> String {
        let (reader, writer) = std::io::pipe().unwrap();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(LineFormat { format, daemon: None })
            .with_writer(Mutex::new(writer))
            .with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let line = std::io::read_to_string(reader).unwrap();
        line.split_once(' ').unwrap().1.to_owned()
    }

    #[test]
    fn a_value_of_a_client_in_a_message_is_no_field() {
        let value = r#"a" client="6.6.6.6" method=""#;
        let log = || tracing::warn!(target: "howdah_router", client = "127.0.0.1", "failed for {value}");
        let expected = r#" WARN failed for a" client=\"6.6.6.6" method=\" client="127.0.0.1""#;
        assert_eq!(line(LogFormat::Text, log).trim_end(), expected);
        let of_supervisor = || tracing::warn!("failed:\n{value}");
        assert_eq!(
            line(LogFormat::Text, of_supervisor),
            " WARN failed:\n    a\" client=\\\"6.6.6.6\" method=\\\"\n",
            "also in its further lines"
        );
        let json = line(LogFormat::Json, log);
        assert!(json.contains(r#"for a\" client=\"6.6.6.6\" method=\"","#), "{json}");
    }

    #[test]
    fn a_text_in_a_field_is_in_quotes() {
        let path = Path::new("/a b=\"1\"");
        let log =
            || tracing::info!(path = %path.display(), text = "x\n", count = 3, ratio = 0.5, is_set = true, "logged");
        let expected = r#" INFO logged path="/a b=\"1\"" text="x\n" count=3 ratio=0.5 is_set=true"#;
        assert_eq!(line(LogFormat::Text, log).trim_end(), expected);
        let long = "\"".repeat(5000);
        let cut = line(LogFormat::Text, || tracing::info!(long, "logged"));
        assert!(cut.len() < 5000 && cut.ends_with("\\\"...\"\n"), "{cut}");
    }

    #[test]
    fn a_message_of_the_supervisor_may_be_longer_than_a_value_and_is_cut() {
        let value = "\n".repeat(100_000);
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = line(format, || tracing::warn!(value, "failed: {value}"));
            assert!((LONGEST_MESSAGE..3 * LONGEST_MESSAGE).contains(&line.len()), "{format:?}: {}", line.len());
        }
    }
}
