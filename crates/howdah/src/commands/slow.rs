//! `howdah slow`: the last slow requests, and what PHP did in them.

use crate::client::connection::{Answer, Server};
use crate::client::plain::{bytes, plain, text};
use crate::client::segment;
use crate::client::status::application_names;
use crate::output;
use serde_json::Value;
use std::fmt::Write;

/// A request with its lines of the slow log.
struct Request {
    id: String,
    lines: Vec<Value>,
}

/// Prints the last ones of an application, or of all.
///
/// # Errors
/// When there is no slow log, it cannot be read, or howdah gives no answer.
pub fn print(server: &Server, application: Option<&str>, last: usize, json: bool) -> Result<(), String> {
    let (mut requests, unreadable) = match application {
        Some(name) => (requests(&fetch(server, name)?.succeeded(None)?.bytes), Vec::new()),
        None => fetch_all(server)?,
    };
    for problem in unreadable {
        output::complain(&problem);
    }
    requests.sort_by_key(Request::time);
    let requests = &requests[requests.len().saturating_sub(last)..];
    let mut printed = String::new();
    for request in requests {
        match json {
            true => request.lines.iter().for_each(|line| printed.push_str(&format!("{line}\n"))),
            false => printed.push_str(&request.describe()),
        }
    }
    if requests.is_empty() && !json {
        printed.push_str("No request has been slow.\n");
    }
    output::print(&printed);
    Ok(())
}

/// The requests of all applications, and what is wrong with the logs that cannot be read.
fn fetch_all(server: &Server) -> Result<(Vec<Request>, Vec<String>), String> {
    let (mut logs, mut absent, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for name in application_names(server)? {
        let answer = fetch(server, &name)?;
        let is_absent = answer.is_not_found();
        match answer.succeeded(None) {
            Ok(log) => logs.push(requests(&log.bytes)),
            Err(why) if is_absent => absent.push(why),
            Err(why) => unreadable.push(format!("{name:?}: {why}")),
        }
    }
    // Without a slow log there is nothing to print of an application, unless there is none at all.
    if logs.is_empty() {
        absent.truncate(1);
        let problems = if unreadable.is_empty() { absent } else { unreadable };
        return Err(problems.join("\n"));
    }
    Ok((logs.into_iter().flatten().collect(), unreadable))
}

fn fetch(server: &Server, application: &str) -> Result<Answer, String> {
    server.ask("GET", &format!("/status/applications/{}/slow", segment(application)?), None, Vec::new())
}

/// The requests of a log. Lines that are none of the samplers' are left out: the application can write there, too.
fn requests(log: &[u8]) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for line in log.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        let Some(id) = line.get("request").and_then(Value::as_str).map(str::to_owned) else { continue };
        match requests.iter_mut().rev().find(|request| request.id == id) {
            Some(request) => request.lines.push(line),
            None => requests.push(Request { id, lines: vec![line] }),
        }
    }
    requests
}

// === impl Request ===

impl Request {
    /// Of its first line; texts of this form are in the order of time.
    fn time(&self) -> String {
        self.lines[0].get("time").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn describe(&self) -> String {
        let last = self.lines.last().unwrap_or(&Value::Null);
        let event = last.get("event").and_then(Value::as_str).unwrap_or_default();
        let is_limit = self.lines.iter().any(|line| line.get("event").is_some_and(|event| event == "limit"));
        let least = if event == "end" { "" } else { "at least " };
        let end = match (event, is_limit) {
            (_, true) => ", ended by limits/timeout",
            ("end", false) => "",
            _ => ", and goes on or was killed",
        };
        let number = |name: &str| last.get(name).and_then(Value::as_u64).unwrap_or_default();
        let mut text = format!(
            "{}  {}  {} {}\n  {least}{} s{end}, {} s of CPU; {} of memory, {} at most; worker {}; {}\n",
            plain(&self.time()),
            self::text(last, "application"),
            self::text(last, "method"),
            self::text(last, "url"),
            seconds(last, "elapsed"),
            seconds(last, "cpu"),
            bytes(number("memory")),
            bytes(number("memory_peak")),
            number("pid"),
            self::text(last, "script"),
        );
        let counters = last.get("counters").and_then(Value::as_object).into_iter().flatten();
        let counters: Vec<_> = counters
            .filter(|(_, count)| count.as_u64() != Some(0))
            .map(|(name, count)| format!("{} {count}", plain(name).replace('_', " ")))
            .collect();
        if !counters.is_empty() {
            let _ = writeln!(text, "  {}", counters.join(", "));
        }
        let mut before = None;
        for line in self.lines.iter().filter(|line| line.get("backtrace").is_some()) {
            let stack = stack(line);
            if before.as_ref() == Some(&stack) {
                let _ = writeln!(text, "  after {} s: the same", seconds(line, "elapsed"));
            } else {
                let _ = write!(text, "  after {} s:\n{stack}", seconds(line, "elapsed"));
            }
            before = Some(stack);
        }
        text + "\n"
    }
}

fn seconds(line: &Value, name: &str) -> String {
    line.get(name).and_then(Value::as_f64).map_or("?".to_owned(), |seconds| format!("{seconds:.3}"))
}

fn stack(line: &Value) -> String {
    let mut printed = String::new();
    let waits_in = line.pointer("/native/waits_in").and_then(Value::as_str);
    for (depth, frame) in line.get("backtrace").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let class = match text(frame, "class") {
            class if class.is_empty() => class,
            class => class + "::",
        };
        let place = match (text(frame, "file"), frame.get("line").and_then(Value::as_u64)) {
            (file, Some(line)) if !file.is_empty() => format!("  {file}:{line}"),
            (file, _) => file,
        };
        let wait = waits_in.filter(|_| depth == 0).map(|wait| format!(" in {}", plain(wait))).unwrap_or_default();
        let _ = writeln!(printed, "    {class}{}{wait}{place}", text(frame, "function"));
    }
    if line.get("cut").is_some() {
        printed.push_str("    …\n");
    }
    if printed.is_empty() {
        let wait = waits_in.map(|wait| format!(", in {}", plain(wait))).unwrap_or_default();
        let _ = writeln!(printed, "    at the start or end of the request{wait}");
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::connection::tests::api;

    const ABSENT: (u16, &str) = (404, r#"{"error": "None.", "detail": "slow_log is not set"}"#);
    const UNREADABLE: (u16, &str) = (500, r#"{"error": "The slow log cannot be read.", "detail": "\"/s\" is gone"}"#);
    const LOG: (u16, &str) = (200, "{\"request\": \"7.1\"}\n");

    /// What is found and what is complained of, if the two applications have these.
    fn all(blog: (u16, &'static str), shop: (u16, &'static str)) -> Result<(usize, Vec<String>), String> {
        let server = api(vec![
            ("/status", (200, r#"{"applications": {"blog": {}, "shop": {}}}"#)),
            ("/status/applications/blog/slow", blog),
            ("/status/applications/shop/slow", shop),
        ]);
        fetch_all(&server).map(|(requests, unreadable)| (requests.len(), unreadable))
    }

    #[test]
    fn a_log_that_cannot_be_read_is_told_whatever_the_others_are() {
        let problem = "\"shop\": The slow log cannot be read. \"/s\" is gone";
        assert_eq!(all(LOG, LOG), Ok((2, vec![])));
        assert_eq!(all(LOG, ABSENT), Ok((1, vec![])));
        assert_eq!(all(LOG, UNREADABLE), Ok((1, vec![problem.to_owned()])));
        assert_eq!(all(ABSENT, UNREADABLE), Err(problem.to_owned()));
        assert_eq!(all(ABSENT, ABSENT), Err("None. slow_log is not set".to_owned()));
    }

    #[test]
    fn a_request_is_told_with_what_php_did() {
        let log = concat!(
            r#"{"time":"2026-01-02T03:04:05.678Z","application":"shop","request":"7.1","pid":7,"event":"sample","sample":1,"method":"GET","url":"/a\u001b[2J","script":"/s/a.php","elapsed":1.0,"cpu":0.1,"memory":2097152,"memory_peak":2097152,"counters":{"gc_runs":0,"included_files":3},"native":{"function":"sleep","waits_in":"clock_nanosleep"},"backtrace":[{"function":"sleep"},{"function":"nap","class":"Shop","file":"/s/a.php","line":3}]}"#,
            "\nno JSON\n{}\n",
            r#"{"time":"x","application":"shop","request":"7.2","pid":7,"event":"sample","elapsed":1.5,"native":null,"backtrace":[]}"#,
            "\n",
            r#"{"time":"y","application":"shop","request":"7.1","pid":7,"event":"sample","sample":2,"elapsed":2.0,"native":{"function":"sleep","waits_in":"clock_nanosleep"},"backtrace":[{"function":"sleep"},{"function":"nap","class":"Shop","file":"/s/a.php","line":3}]}"#,
            "\n",
            r#"{"time":"z","application":"shop","request":"7.1","pid":7,"event":"end","method":"GET","url":"/a\u001b[2J","script":"/s/a.php","elapsed":2.5,"cpu":0.1,"memory":2097152,"memory_peak":2097152,"counters":{"gc_runs":0,"included_files":3}}"#,
            "\n",
        );
        let requests = requests(log.as_bytes());
        assert_eq!(requests.iter().map(|request| request.lines.len()).collect::<Vec<_>>(), [3, 1]);
        assert_eq!(
            requests[0].describe(),
            "2026-01-02T03:04:05.678Z  shop  GET /a\\u{1b}[2J\n  \
             2.500 s, 0.100 s of CPU; 2.0 MiB of memory, 2.0 MiB at most; worker 7; /s/a.php\n  \
             included files 3\n  \
             after 1.000 s:\n    sleep in clock_nanosleep\n    Shop::nap  /s/a.php:3\n  \
             after 2.000 s: the same\n\n"
        );
        assert!(requests[1].describe().contains("goes on or was killed"));
    }
}
