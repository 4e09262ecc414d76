//! The numbers above the workers: the same as on the first page of `howdah dashboard`.

use crate::commands::status::describe_upstreams;
use crate::control_client::reason_of_503;
use crate::control_client::traffic::Rates;
use crate::terminal::plain::plain;
use crate::terminal::table::table;
use serde_json::Value;

const COLUMNS: [&str; 10] =
    ["application", "requests/s", "errors/s", "median", "95 %", "99 %", "running", "queue", "refused", "processes"];

/// The numbers of all applications, or of one. Without rates (the first reading, or a howdah without metrics) these are dashes.
pub fn describe(status: &Value, rates: Option<&Rates>, application: Option<&str>) -> String {
    let all = status.get("applications").and_then(Value::as_object).into_iter().flatten();
    let shown = all.filter(|(name, _)| application.is_none_or(|application| application == *name));
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    let mut notes = String::new();
    for (name, value) in shown {
        let rates = rates.and_then(|rates| rates.of_application(name));
        rows.push(row(name, value, rates.as_ref()));
        note(name, value, rates.as_ref(), &mut notes);
    }
    let mut text = table(&rows, &[0]);
    if application.is_none() {
        if let Some(others) = rates.and_then(|rates| rates.of_application("")) {
            let (requests, errors) = (rate(others.get("requests")), rate(others.get("errors")));
            notes.push_str(&format!(
                "without an application (files, proxies, redirects): {requests} requests/s, {errors} errors/s\n"
            ));
        }
        for (name, former) in status.get("draining").and_then(Value::as_object).into_iter().flatten() {
            let processes = former.get("processes").and_then(Value::as_u64).unwrap_or_default();
            notes.push_str(&format!(
                "{}: {processes} processes of former generations finish their requests\n",
                plain(name)
            ));
        }
    }
    if !notes.is_empty() {
        text.push_str(&format!("\n{notes}"));
    }
    let upstreams = status.get("upstreams").and_then(Value::as_object).filter(|all| !all.is_empty());
    if let Some(upstreams) = upstreams.filter(|_| application.is_none()) {
        text.push_str(&format!("\n{}", describe_upstreams(upstreams)));
    }
    text
}

fn row(name: &str, value: &Value, rates: Option<&Value>) -> [String; COLUMNS.len()] {
    let rated = |name: &str| rates.and_then(|rates| rates.get(name));
    let number =
        |path: &str| value.pointer(path).and_then(Value::as_u64).map_or("-".to_owned(), |number| number.to_string());
    [
        plain(name),
        rate(rated("requests")),
        rate(rated("errors")),
        milliseconds(rated("p50")),
        milliseconds(rated("p95")),
        milliseconds(rated("p99")),
        number("/requests/active"),
        number("/requests/waiting"),
        number("/requests/refused"),
        number("/processes/running"),
    ]
}

/// Why the pool has its size, why requests were refused, why the application answers 503.
fn note(name: &str, value: &Value, rates: Option<&Value>, notes: &mut String) {
    let name = plain(name);
    if let Some(why) = value.pointer("/processes/auto/why").and_then(Value::as_str) {
        notes.push_str(&format!("{name}: {}\n", plain(why)));
    }
    let causes = rates.and_then(|rates| rates.get("refused_total")).and_then(Value::as_object);
    let causes: Vec<_> =
        causes.into_iter().flatten().map(|(cause, count)| format!("{count} {}", plain(cause))).collect();
    if !causes.is_empty() {
        notes.push_str(&format!("{name}: not answered by the application since the start: {}\n", causes.join(", ")));
    }
    if let Some(reason) = reason_of_503(value) {
        notes.push_str(&format!("{name}: answers 503: {reason}\n"));
    }
}

fn rate(value: Option<&Value>) -> String {
    let rate = value.and_then(Value::as_f64);
    rate.map_or(
        "-".to_owned(),
        |rate| if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") },
    )
}

fn milliseconds(value: Option<&Value>) -> String {
    match value.and_then(Value::as_f64).map(|seconds| seconds * 1000.0) {
        None => "-".to_owned(),
        Some(time) if time < 10.0 => format!("{time:.1} ms"),
        Some(time) => format!("{time:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_client::traffic::{Counters, Window};
    use serde_json::json;
    use std::time::{Duration, Instant};

    #[test]
    fn it_has_what_the_first_page_of_the_dashboard_has() {
        let text = |requests: u64| {
            format!(
                "howdah_requests_total{{application=\"shop\",route=\"r\",status=\"2xx\"}} {requests}\n\
                 howdah_requests_total{{application=\"\",route=\"r\",status=\"2xx\"}} {requests}\n\
                 howdah_requests_refused_total{{application=\"shop\",route=\"r\",cause=\"queue\"}} 3\n\
                 howdah_request_duration_seconds_bucket{{application=\"shop\",route=\"r\",le=\"0.005\"}} 0\n\
                 howdah_request_duration_seconds_bucket{{application=\"shop\",route=\"r\",le=\"0.01\"}} {requests}\n"
            )
        };
        let (mut window, start) = (Window::default(), Instant::now());
        window.add(Counters::read(&text(0)), start);
        window.add(Counters::read(&text(50)), start + Duration::from_secs(10));
        let status = json!({
            "applications": {
                "old\u{1b}": { "failure": "no such folder" },
                "rest": { "drained": true },
                "shop": {
                    "processes": { "running": 4, "auto": { "why": "4 workers: 2 cores" } },
                    "requests": { "active": 3, "waiting": 1, "refused": 3 },
                },
            },
            "draining": { "shop": { "generations": 1, "processes": 2 } },
            "upstreams": { "api": { "servers": { "10.0.0.5:80": { "state": "drained", "active": 2 } } } },
        });
        assert_eq!(
            describe(&status, window.rates().as_ref(), None),
            "application  requests/s  errors/s  median    95 %     99 %  running  queue  refused  processes\n\
             old\\u{1b}             -         -       -       -        -        -      -        -          -\n\
             rest                  -         -       -       -        -        -      -        -          -\n\
             shop                5.0         0  7.5 ms  9.8 ms  10.0 ms        3      1        3          4\n\
             \n\
             old\\u{1b}: answers 503: no such folder\n\
             rest: answers 503: it drains\n\
             shop: 4 workers: 2 cores\n\
             shop: not answered by the application since the start: 3 queue\n\
             without an application (files, proxies, redirects): 5.0 requests/s, 0 errors/s\n\
             shop: 2 processes of former generations finish their requests\n\
             \n\
             upstream  server       state    requests\n\
             api       10.0.0.5:80  drained         2\n"
        );
        let one = describe(&status, None, Some("shop"));
        assert!(one.starts_with("application  requests/s") && one.lines().count() == 4, "{one}");
    }
}
