//! `howdah status`: what a howdah does, as a table.

use crate::client::connection::Server;
use crate::client::plain::plain;
use crate::client::table::table;
use crate::client::watch::{self, Found};
use crate::output;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Prints it once.
pub fn print(server: &Server, json: bool) -> Result<(), String> {
    let text = fetch(server)?;
    output::print(&if json { text } else { describe(&parse(&text)?, None) });
    Ok(())
}

/// Prints it again and again; returns only if it cannot, or nobody reads it.
pub fn watch(server: &Server, json: bool) -> Result<(), String> {
    let mut before: Option<(Value, Instant)> = None;
    watch::watch(|| {
        let status = parse(&fetch(server)?)?;
        if json {
            return Ok(Found::Json(status));
        }
        let now = Instant::now();
        let rate = before.as_ref().map(|(before, at)| rate(before, &status, now - *at));
        let text = describe(&status, rate);
        before = Some((status, now));
        Ok(Found::Text(text))
    })
}

/// The names of all applications.
///
/// # Errors
/// When there are none, or howdah gives no answer.
pub fn application_names(server: &Server) -> Result<Vec<String>, String> {
    let status = parse(&fetch(server)?)?;
    let applications = status.get("applications").and_then(Value::as_object);
    let names: Vec<_> = applications.into_iter().flat_map(Map::keys).cloned().collect();
    if names.is_empty() {
        return Err("there are no applications".to_owned());
    }
    Ok(names)
}

fn fetch(server: &Server) -> Result<String, String> {
    Ok(server.ask("GET", "/status", None, Vec::new())?.succeeded(None)?.body)
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|_| "the answer is not JSON: that is no control API of howdah's".to_owned())
}

/// Requests each second.
fn rate(before: &Value, now: &Value, elapsed: Duration) -> f64 {
    let total = |status: &Value| status.pointer("/requests/total").and_then(Value::as_f64).unwrap_or_default();
    // A new router counts from 0.
    (total(now) - total(before)).max(0.0) / elapsed.as_secs_f64()
}

fn describe(status: &Value, rate: Option<f64>) -> String {
    let number = |pointer: &str| match status.pointer(pointer).and_then(Value::as_u64) {
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let rate = rate.map(|rate| format!(", {rate:.0} each second")).unwrap_or_default();
    let mut text = format!(
        "connections  {} active, {} idle; {} accepted, {} closed\nrequests     {} in total{rate}\n",
        number("/connections/active"),
        number("/connections/idle"),
        number("/connections/accepted"),
        number("/connections/closed"),
        number("/requests/total"),
    );
    let Some(applications) = status.get("applications").and_then(Value::as_object).filter(|all| !all.is_empty()) else {
        return text;
    };
    let mut rows =
        vec![["application", "running", "starting", "idle", "requests", "waiting", "refused"].map(str::to_owned)];
    let mut reasons = String::new();
    for (name, application) in applications {
        let number = |pointer: &str| {
            application.pointer(pointer).and_then(Value::as_u64).map_or("-".to_owned(), |number| number.to_string())
        };
        rows.push([
            plain(name),
            number("/processes/running"),
            number("/processes/starting"),
            number("/processes/idle"),
            number("/requests/active"),
            number("/requests/waiting"),
            number("/requests/refused"),
        ]);
        if let Some(why) = application.pointer("/processes/auto/why").and_then(Value::as_str) {
            reasons.push_str(&format!("{}: {why}\n", plain(name)));
        }
    }
    text.push('\n');
    text.push_str(&table(&rows, &[0]));
    if !reasons.is_empty() {
        text.push('\n');
        text.push_str(&reasons);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_line_for_each_application() {
        let status = json!({
            "connections": { "accepted": 1067, "active": 13, "idle": 4, "closed": 1050 },
            "requests": { "total": 1307 },
            "applications": {
                "a long name": {
                    "processes": { "running": 14, "starting": 0, "idle": 10, "auto": { "why": "14 workers: 2 cores" } },
                    "requests": { "active": 4, "waiting": 1, "refused": 7 },
                },
                "wp": { "processes": { "running": 2, "starting": 0 } },
            },
        });
        assert_eq!(
            describe(&status, Some(199.6)),
            "connections  13 active, 4 idle; 1067 accepted, 1050 closed\n\
             requests     1307 in total, 200 each second\n\
             \n\
             application  running  starting  idle  requests  waiting  refused\n\
             a long name       14         0    10         4        1        7\n\
             wp                 2         0     -         -        -        -\n\
             \n\
             a long name: 14 workers: 2 cores\n"
        );
        assert!(describe(&json!({}), None).ends_with("requests     - in total\n"));
    }

    #[test]
    fn a_new_router_is_no_negative_rate() {
        let total = |total: u64| json!({ "requests": { "total": total } });
        assert_eq!(rate(&total(100), &total(500), Duration::from_secs(2)), 200.0);
        assert_eq!(rate(&total(100), &total(5), Duration::from_secs(1)), 0.0);
    }
}
