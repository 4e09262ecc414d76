//! `howdah slow`: the last slow requests, with PHP's stack.
//!
//! An application can write into its own slow log: lines of another form are ignored, and all text is escaped.

use crate::control_client::{ApiOptions, ApiResponse, ControlApi, application_names, name_segment};
use crate::terminal::output;
use crate::terminal::plain::{bytes, plain, text};
use clap::Args;
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;

/// The options of `howdah slow`.
#[derive(Debug, Args)]
pub struct SlowOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name. Default: all applications.
    #[arg(value_name = "APP")]
    application: Option<String>,
    /// The number of requests to print.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    last: u32,
    /// Print JSON: one line for each sample of a request.
    #[arg(long)]
    json: bool,
}

/// A slow request with its lines of the slow log.
struct SlowRequest {
    lines: Vec<Value>,
}

// === impl SlowOptions ===

impl SlowOptions {
    /// Prints the last slow requests of one application, or of all.
    ///
    /// # Errors
    /// No application has a slow log, a log cannot be read, or the control API gives no response.
    pub fn run(&self) -> Result<(), String> {
        let api = ControlApi::new(&self.api)?;
        let (requests, unreadable) = match &self.application {
            Some(name) => (requests(&fetch(&api, name)?.accepted(None)?.bytes), Vec::new()),
            None => fetch_all(&api)?,
        };
        for reason in unreadable {
            output::print_error(&reason);
        }
        print(requests, self.last as usize, self.json);
        Ok(())
    }
}

/// The last requests of a log, the latest first: for each its lines.
pub fn last_requests(log: &[u8], last: usize) -> Vec<Vec<Value>> {
    let mut requests = requests(log);
    requests.sort_by_key(SlowRequest::time);
    requests.into_iter().rev().take(last).map(|request| request.lines).collect()
}

fn print(mut requests: Vec<SlowRequest>, last: usize, json: bool) {
    requests.sort_by_key(SlowRequest::time);
    let requests = &requests[requests.len().saturating_sub(last)..];
    if json {
        let lines = requests.iter().flat_map(|request| &request.lines);
        output::print_json(&lines.map(|line| format!("{line}\n")).collect::<String>());
        return;
    }
    let mut printed: String = requests.iter().map(SlowRequest::describe).collect();
    if requests.is_empty() {
        printed.push_str("No request has been slow.\n");
    }
    output::print(&printed);
}

/// The requests of all applications, and an error for each log that cannot be read.
fn fetch_all(api: &ControlApi) -> Result<(Vec<SlowRequest>, Vec<String>), String> {
    let (mut logs, mut absent, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for name in application_names(api)? {
        let response = fetch(api, &name)?;
        let is_absent = response.is_not_found();
        match response.accepted(None) {
            Ok(log) => logs.push(requests(&log.bytes)),
            Err(reason) if is_absent => absent.push(reason),
            Err(reason) => unreadable.push(format!("{name:?}: {reason}")),
        }
    }
    // An application without a slow log is an error only if no application has one.
    if logs.is_empty() {
        absent.truncate(1);
        let reasons = if unreadable.is_empty() { absent } else { unreadable };
        return Err(reasons.join("\n"));
    }
    Ok((logs.into_iter().flatten().collect(), unreadable))
}

fn fetch(api: &ControlApi, application: &str) -> Result<ApiResponse, String> {
    api.get(&format!("/status/applications/{}/slow", name_segment(application)?))
}

/// Whether a line is as long as those of the sampler, and has as few objects and arrays: each frame is an object with several members.
/// Small ones take a hundred times their bytes in memory.
fn is_of_sampler(line: &[u8]) -> bool {
    const SHORTEST: usize = 100;
    const BYTES_OF_EACH: usize = 24;
    let (mut count, mut in_text, mut is_escaped) = (0, false, false);
    for byte in line {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => count += 1,
            _ => {}
        }
    }
    line.len() >= SHORTEST && count <= line.len() / BYTES_OF_EACH
}

/// The requests of a log. Ignores lines that the sampler did not write.
fn requests(log: &[u8]) -> Vec<SlowRequest> {
    let mut requests: Vec<SlowRequest> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for line in log.split(|byte| *byte == b'\n').filter(|line| is_of_sampler(line)) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        let Some(id) = line.get("request").and_then(Value::as_str).map(str::to_owned) else { continue };
        match known.entry(id) {
            Entry::Occupied(at) => requests[*at.get()].lines.push(line),
            Entry::Vacant(new) => {
                new.insert(requests.len());
                requests.push(SlowRequest { lines: vec![line] });
            }
        }
    }
    requests
}

// === impl SlowRequest ===

impl SlowRequest {
    /// The time of its first line. Texts of this form sort by time.
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
            _ => ", still running or killed",
        };
        let number = |name: &str| last.get(name).and_then(Value::as_u64).unwrap_or_default();
        // In async mode both belong to all requests of the worker.
        let cpu = last.get("cpu").map(|_| format!(", {} s of CPU", seconds(last, "cpu"))).unwrap_or_default();
        let held = last.get("held_requests").and_then(Value::as_u64);
        let held = held.map(|held| format!(", which held {held} requests")).unwrap_or_default();
        let mut text = format!(
            "{}  {}  {} {}\n  {least}{} s{end}{cpu}; memory {}, peak {}; worker {}{held}; {}\n",
            plain(&self.time()),
            self::text(last, "application"),
            self::text(last, "method"),
            self::text(last, "url"),
            seconds(last, "elapsed"),
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
        let location = match (text(frame, "file"), frame.get("line").and_then(Value::as_u64)) {
            (file, Some(line)) if !file.is_empty() => format!("  {file}:{line}"),
            (file, _) => file,
        };
        let wait = waits_in.filter(|_| depth == 0).map(|wait| format!(" in {}", plain(wait))).unwrap_or_default();
        let _ = writeln!(printed, "    {class}{}{wait}{location}", text(frame, "function"));
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
    use crate::control_client::connection::tests::api;

    const ABSENT: (u16, &str) = (404, r#"{"error": "None.", "detail": "slow_log is not set"}"#);
    const UNREADABLE: (u16, &str) = (500, r#"{"error": "The slow log cannot be read.", "detail": "\"/s\" is gone"}"#);
    const LOG: (u16, &str) = (
        200,
        concat!(
            r#"{"time":"2026-01-02T03:04:05.678Z","application":"shop","request":"7.1","pid":7,"event":"end","method":"GET","#,
            r#""url":"/a"}"#,
            "\n"
        ),
    );

    /// The number of requests and the errors, if the two applications have these logs.
    fn all(blog: (u16, &'static str), shop: (u16, &'static str)) -> Result<(usize, Vec<String>), String> {
        let api = api(vec![
            ("/status", (200, r#"{"applications": {"blog": {}, "shop": {}}}"#)),
            ("/status/applications/blog/slow", blog),
            ("/status/applications/shop/slow", shop),
        ]);
        fetch_all(&api).map(|(requests, unreadable)| (requests.len(), unreadable))
    }

    #[test]
    fn a_log_that_cannot_be_read_is_always_reported() {
        let problem = "\"shop\": The slow log cannot be read. \"/s\" is gone";
        assert_eq!(all(LOG, LOG), Ok((2, vec![])));
        assert_eq!(all(LOG, ABSENT), Ok((1, vec![])));
        assert_eq!(all(LOG, UNREADABLE), Ok((1, vec![problem.to_owned()])));
        assert_eq!(all(ABSENT, UNREADABLE), Err(problem.to_owned()));
        assert_eq!(all(ABSENT, ABSENT), Err("None. slow_log is not set".to_owned()));
    }

    #[test]
    fn lines_that_would_take_much_memory_are_ignored() {
        let many = format!("{{\"request\": \"1\", \"x\": [{}0]}}", "{\"\":0},".repeat(1000));
        let text = format!("{{\"request\": \"2\", \"url\": \"/?{}\\\"[\"}}", "[{".repeat(500));
        let log = format!("{many}\n{text}\n{{\"request\": \"3\"}}\n{}", LOG.1);
        let found = requests(log.as_bytes());
        let found: Vec<_> = found.iter().map(|request| request.lines[0]["request"].as_str().unwrap()).collect();
        assert_eq!(found, ["2", "7.1"]);
    }

    #[test]
    fn a_request_is_printed_with_phps_stack() {
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
             2.500 s, 0.100 s of CPU; memory 2.0 MiB, peak 2.0 MiB; worker 7; /s/a.php\n  \
             included files 3\n  \
             after 1.000 s:\n    sleep in clock_nanosleep\n    Shop::nap  /s/a.php:3\n  \
             after 2.000 s: the same\n\n"
        );
        assert!(requests[1].describe().contains("still running or killed"));
        let log = r#"{"time":"t","application":"chat","request":"8.1","pid":8,"event":"end","method":"GET","url":"/","script":"/s","elapsed":2.5,"memory":2097152,"memory_peak":2097152,"held_requests":3}"#;
        let text = super::requests(log.as_bytes())[0].describe();
        let expected =
            "t  chat  GET /\n  2.500 s; memory 2.0 MiB, peak 2.0 MiB; worker 8, which held 3 requests; /s\n\n";
        assert_eq!(text, expected, "of async mode");
    }
}
