//! The form of a log line: text, or a JSON object, each with the request that the thread works on.
//!
//! Text: `2026-01-31T12:00:00.123456Z  WARN message field="value" method="GET" uri="/" client="127.0.0.1"`, with colours on a
//! terminal. JSON: `{"time": …, "level": …, "message": …}` and the fields.
//!
//! Control characters are escaped, and long values of the router, which come from clients, are cut. A message of the
//! supervisor may have several lines, of which all but the first are indented: it may contain the output of an application.

use crate::diagnostics::destination::application_log;
use crate::terminal::plain::plain;
use howdah_router::current_request_fields;
use howdah_supervisor::LogFormat;
use howdah_supervisor::plain_text::{plain_lines, short};
use serde_json::{Map, Value};
use std::fmt::{self, Debug};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes log lines in one of the forms.
pub struct LineFormat {
    format: LogFormat,
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

/// The field of a line's text.
const MESSAGE: &str = "message";
/// The beginning of the targets of the router's lines.
const ROUTER: &str = "howdah_router";

// === impl LineFormat ===

impl LineFormat {
    /// The form that the command line chose for all processes.
    pub fn of_environment() -> LineFormat {
        LineFormat { format: LogFormat::of_environment() }
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
            LogFormat::Json => {
                let mut members = Members { all: Map::new(), are_short: is_of_router(event) };
                members.all.insert("time".to_owned(), time.into());
                members.all.insert("level".to_owned(), level.as_str().into());
                event.record(&mut members);
                members.all.extend(request.map(|(name, value)| (name.to_owned(), short(&value).into())));
                writeln!(writer, "{}", Value::Object(members.all))
            }
        }
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
