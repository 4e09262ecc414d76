//! A line of the access log: a request and its response in the configured format.
//!
//! The line is made when the head of the response is known, and written after the end of its body. Marks stand for the
//! values that are known only then (`$body_bytes_sent`, `$request_time`). A client cannot forge a line: quotes and
//! control characters in values are escaped.

use crate::process::thread;
use crate::request::local_time;
use crate::request::subject::Answered;
use howdah_config::{AccessLog, LogFormat, Template, TemplatePart, TemplateVariable, Variables};
use http::StatusCode;
use std::cell::Cell;
use std::fmt::Write as _;
use std::time::Instant;

/// A line that waits for the end of its response.
pub struct Entry {
    /// With marks for values that are not known yet.
    line: String,
    is_json: bool,
    since: Instant,
    /// How many bytes of the response's body were sent.
    pub body_bytes: u64,
}

/// Marks in a line. No value contains them: they are control characters, which are escaped.
const BODY_BYTES: char = '\u{1}';
const REQUEST_TIME: char = '\u{2}';

// === impl Entry ===

impl Entry {
    /// The line of a request; `None` if its condition does not hold.
    pub fn new(log: &AccessLog, answered: &Answered<'_>) -> Option<Box<Entry>> {
        if log.condition.as_ref().is_some_and(|condition| !condition.holds(answered)) {
            return None;
        }
        Some(Box::new(Entry::of(&log.format, answered, answered.since())))
    }

    /// The line of bytes that were not a request, and were answered with this status. A condition cannot hold for it.
    pub fn of_no_request(log: &AccessLog, remote: &str, status: StatusCode) -> Option<Box<Entry>> {
        let no_request = NoRequest { remote, status };
        log.condition.is_none().then(|| Box::new(Entry::of(&log.format, &no_request, Instant::now())))
    }

    fn of(format: &LogFormat, variables: &dyn Variables, since: Instant) -> Entry {
        let (line, is_json) = match format {
            LogFormat::Text(template) => (render(template, &Escaped { variables, escape: escape_text }), false),
            LogFormat::Json(members) => (json(members, variables), true),
        };
        Entry { line, is_json, since, body_bytes: 0 }
    }

    /// Adds the line to the thread's log.
    pub fn write(&self) {
        let mut line = String::with_capacity(self.line.len() + 16);
        for c in self.line.chars() {
            match c {
                BODY_BYTES => drop(write!(line, "{}", self.body_bytes)),
                REQUEST_TIME => drop(write!(line, "{:.3}", self.since.elapsed().as_secs_f64())),
                // A control character of the format itself would break the JSON.
                c if self.is_json && c.is_control() => {}
                c => line.push(c),
            }
        }
        thread::with_access_log(|log| log.append(&line));
    }
}

fn json(members: &[(String, Template)], variables: &dyn Variables) -> String {
    let variables = Escaped { variables, escape: escape_json };
    let mut line = "{".to_owned();
    for (n, (name, template)) in members.iter().enumerate() {
        if n > 0 {
            line.push(',');
        }
        line.push('"');
        escape_json(name, &mut line);
        line.push_str("\":\"");
        // The constant parts are escaped like the values.
        template.parts().for_each(|part| match part {
            TemplatePart::Literal(text) => escape_json(text, &mut line),
            TemplatePart::Variable(variable) => variables.write(variable, &mut line),
        });
        line.push('"');
    }
    line.push('}');
    line
}

fn render(template: &Template, variables: &Escaped<'_>) -> String {
    let mut line = String::with_capacity(256);
    template.write(variables, &mut line);
    line
}

/// Writes escaped values; `-` for an empty one.
struct Escaped<'v> {
    variables: &'v dyn Variables,
    escape: fn(&str, &mut String),
}

impl Variables for Escaped<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) {
        thread_local! {
            /// A buffer for one value.
            static VALUE: Cell<String> = const { Cell::new(String::new()) };
        }
        match variable {
            TemplateVariable::BodyBytesSent => return out.push(BODY_BYTES),
            TemplateVariable::RequestTime => return out.push(REQUEST_TIME),
            _ => {}
        }
        let mut value = VALUE.take();
        value.clear();
        self.variables.write(variable, &mut value);
        if value.is_empty() {
            out.push('-');
        } else {
            (self.escape)(&value, out);
        }
        VALUE.set(value);
    }
}

struct NoRequest<'a> {
    remote: &'a str,
    status: StatusCode,
}

impl Variables for NoRequest<'_> {
    fn write(&self, variable: &TemplateVariable, out: &mut String) {
        match variable {
            TemplateVariable::RemoteAddr => out.push_str(self.remote),
            TemplateVariable::Status => out.push_str(self.status.as_str()),
            TemplateVariable::TimeLocal => out.push_str(&local_time::now()),
            _ => {}
        }
    }
}

fn escape_text(text: &str, out: &mut String) {
    for c in text.chars() {
        if c == '"' || c == '\\' || c.is_control() {
            let _ = write!(out, "\\x{:02X}", c as u32);
        } else {
            out.push(c);
        }
    }
}

/// RFC 8259, 7.
fn escape_json(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", c as u32)),
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
        fn write(&self, variable: &TemplateVariable, out: &mut String) {
            match variable {
                TemplateVariable::Uri => out.push_str("/a\"b\nc\\\u{1}\u{2}"),
                TemplateVariable::Status => out.push_str("200"),
                _ => {}
            }
        }
    }

    fn line(format: &str) -> String {
        let text = format!(r#"{{"access_log": {{"path": "-", "format": {format}}}}}"#);
        let log = Configuration::parse(&text).unwrap().access_log.unwrap();
        Entry::of(&log.format, &Hostile, Instant::now()).line
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        assert_eq!(line(r#""$status \"$uri\" $host""#), "200 \"/a\\x22b\\x0Ac\\x5C\\x01\\x02\" -");
    }

    #[test]
    fn a_json_line_is_json() {
        let line =
            line(r#"{"u\"ri": "<$uri>", "bytes": "$body_bytes_sent", "time": "$request_time", "host": "$host"}"#);
        let line = line.replace(BODY_BYTES, "5").replace(REQUEST_TIME, "0.001");
        let expected =
            "{\"u\\\"ri\":\"</a\\\"b\\u000ac\\\\\\u0001\\u0002>\",\"bytes\":\"5\",\"time\":\"0.001\",\"host\":\"-\"}";
        assert_eq!(line, expected);
    }
}
