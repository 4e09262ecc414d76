//! The form of a log line: text, or a JSON object, each with the request that the thread works on.
//!
//! Text: `2026-01-31T12:00:00.123456Z  WARN message field="value" method="GET" uri="/" client="127.0.0.1"`, with colours on a
//! terminal. JSON: `{"time": …, "level": …, "message": …}` and the fields.
//!
//! With a log daemon, the text is without time and level, and the fields of the event and of the request are fields of the
//! daemon's message. An application's own log gets its lines nevertheless, and the warnings about the daemon itself are on
//! standard error.
//!
//! Control characters are escaped, and long values of the router, which come from clients, are cut. A message of the
//! supervisor may have several lines, of which all but the first are indented: it may contain the output of an application.

use crate::diagnostics::destination::application_log;
use crate::terminal::plain::plain;
use howdah_router::{current_request_fields, send_log_line};
use howdah_supervisor::LogFormat;
use howdah_supervisor::plain_text::{plain_lines, short};
use howdah_system_log::SystemLog;
use howdah_system_log::record::{Record, Severity};
use howdah_telemetry::logs::{self, LogLine};
use howdah_telemetry::messages::KeyValue;
use serde_json::{Map, Value};
use std::fmt::{self, Debug, Write as _};
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
    /// Long values are cut.
    are_short: bool,
}

/// Members for which a daemon's message has places of its own.
const OF_DAEMON: [&str; 2] = ["time", "level"];
/// The field of a line's text.
const MESSAGE: &str = "message";
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
        if logs::is_on() {
            send_log_line(&for_collector(event, time.clone(), request.clone().into_iter()));
        }
        let request = request.into_iter();
        if let Some(daemon) = self.daemon_of(event) {
            daemon.push(record(event, self.format, time, request));
            return Ok(());
        }
        match self.format {
            LogFormat::Text => {
                // Only a terminal gets colours.
                let mut plain = String::new();
                let mut fields = match application_log(event.metadata()) {
                    Some(_) => Writer::new(&mut plain),
                    None => writer.by_ref(),
                };
                match fields.has_ansi_escapes() {
                    true => write!(fields, "\x1b[2m{time}\x1b[0m \x1b[{}m{level:>5}\x1b[0m ", colour(level))?,
                    false => write!(fields, "{time} {level:>5} ")?,
                }
                let of_event = TextFields::of(event, fields.has_ansi_escapes());
                write!(fields, "{}", of_event.text)?;
                for (name, value) in request {
                    write!(fields, " {name}={:?}", short(&value))?;
                }
                writeln!(writer, "{plain}")
            }
            LogFormat::Json => writeln!(writer, "{}", Value::Object(members(event, time, request))),
        }
    }
}

/// The members of a JSON line.
fn members(
    event: &Event<'_>,
    time: String,
    request: impl Iterator<Item = (&'static str, String)>,
) -> Map<String, Value> {
    let mut members = Members { all: Map::new(), are_short: is_of_router(event) };
    members.all.insert("time".to_owned(), time.into());
    members.all.insert("level".to_owned(), event.metadata().level().as_str().into());
    event.record(&mut members);
    members.all.extend(request.map(|(name, value)| (name.to_owned(), short(&value).into())));
    members.all
}

/// The line for the collector of `settings/telemetry`.
fn for_collector(event: &Event<'_>, time: String, request: impl Iterator<Item = (&'static str, String)>) -> LogLine {
    let severity = match *event.metadata().level() {
        Level::ERROR => logs::Severity::Error,
        Level::WARN => logs::Severity::Warn,
        Level::INFO => logs::Severity::Info,
        Level::DEBUG | Level::TRACE => logs::Severity::Debug,
    };
    let mut all = members(event, time, request);
    let text = all.remove(MESSAGE);
    let trace = all.remove("trace_id").and_then(|id| id.as_str().map(str::to_owned));
    all.retain(|name, _| !OF_DAEMON.contains(&name.as_str()));
    let text_of = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let own = [KeyValue::text("howdah.log", "error")];
    let fields = all.into_iter().map(|(name, value)| KeyValue::text(&format!("howdah.{name}"), text_of(value)));
    let attributes = own.into_iter().chain(fields).collect();
    let text = text.map(text_of).unwrap_or_default();
    LogLine { time: std::time::SystemTime::now(), severity, text, attributes, trace }
}

/// A line for a log daemon.
fn record(
    event: &Event<'_>,
    format: LogFormat,
    time: String,
    request: impl Iterator<Item = (&'static str, String)>,
) -> Record {
    let severity = match *event.metadata().level() {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    };
    let all = members(event, time, request);
    let text = match format {
        LogFormat::Json => Value::Object(all.clone()).to_string(),
        LogFormat::Text => {
            let mut text = TextFields::of(event, false).text;
            let is_new = |name: &str| event.metadata().fields().field(name).is_none();
            for (name, value) in all.iter().filter(|(name, _)| is_new(name) && !OF_DAEMON.contains(&name.as_str())) {
                let _ = write!(text, " {name}={value}");
            }
            text
        }
    };
    let fields = all.into_iter().filter(|(name, _)| name != MESSAGE && !OF_DAEMON.contains(&name.as_str()));
    let fields = fields.map(|(name, value)| match value {
        Value::String(text) => (name.into(), text),
        other => (name.into(), other.to_string()),
    });
    Record { fields: fields.collect(), ..Record::new(severity, "error", text) }
}

// === impl TextFields ===

impl TextFields {
    fn of(event: &Event<'_>, has_colours: bool) -> TextFields {
        let has_lines = !is_of_router(event);
        let mut fields = TextFields { text: String::new(), has_lines, has_colours };
        event.record(&mut fields);
        fields
    }
}

impl Visit for TextFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let value = format!("{value:?}");
        let text = match field.name() {
            MESSAGE if self.has_lines => plain_lines(&value),
            MESSAGE => plain(&short(&value)),
            name if self.has_colours => format!("\x1b[3m{name}\x1b[0m={}", plain(&short(&value))),
            name => format!("{name}={}", plain(&short(&value))),
        };
        self.text.push_str(&text);
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
        let value = if self.are_short { short(value) } else { value.into() };
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
