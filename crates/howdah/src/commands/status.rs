//! `howdah status`: connections, requests, applications and upstreams of a running howdah, as a table.

use crate::control_client::{ApiOptions, ControlApi, reason_of_503};
use crate::terminal::output;
use crate::terminal::plain::plain;
use crate::terminal::table::table;
use crate::terminal::watch::{self, Report};
use clap::Args;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// The options of `howdah status`.
#[derive(Debug, Args)]
pub struct StatusOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// Print it every second, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl StatusOptions ===

impl StatusOptions {
    /// Prints the status, once or every second.
    ///
    /// # Errors
    /// The control API gives no valid response.
    pub fn run(&self) -> Result<(), String> {
        let api = ControlApi::new(&self.api)?;
        if self.watch { watch(&api, self.json) } else { print(&api, self.json) }
    }
}

fn print(api: &ControlApi, json: bool) -> Result<(), String> {
    let response = api.get("/status")?.accepted(None)?;
    match json {
        true => output::print_json(&response.body),
        false => output::print(&describe(&response.json()?, None)),
    }
    Ok(())
}

fn watch(api: &ControlApi, json: bool) -> Result<(), String> {
    let mut before: Option<(Value, Instant)> = None;
    watch::watch(|| {
        let status = api.get("/status")?.accepted(None)?.json()?;
        if json {
            return Ok(Report::Json(status));
        }
        let now = Instant::now();
        let rate = before.as_ref().map(|(before, at)| rate(before, &status, now - *at));
        let text = describe(&status, rate);
        before = Some((status, now));
        Ok(Report::Text(text))
    })
}

/// Requests per second.
fn rate(before: &Value, now: &Value, elapsed: Duration) -> f64 {
    let total = |status: &Value| status.pointer("/requests/total").and_then(Value::as_f64).unwrap_or_default();
    // A new router counts from 0 again.
    (total(now) - total(before)).max(0.0) / elapsed.as_secs_f64()
}

fn describe(status: &Value, rate: Option<f64>) -> String {
    let number = |pointer: &str| match status.pointer(pointer).and_then(Value::as_u64) {
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let rate = rate.map(|rate| format!(", {rate:.0}/s")).unwrap_or_default();
    let mut text = format!(
        "connections  {} active, {} idle; {} accepted, {} closed\nrequests     {} in total{rate}\n",
        number("/connections/active"),
        number("/connections/idle"),
        number("/connections/accepted"),
        number("/connections/closed"),
        number("/requests/total"),
    );
    if let Some(applications) = status.get("applications").and_then(Value::as_object).filter(|all| !all.is_empty()) {
        text.push('\n');
        text.push_str(&describe_applications(applications));
        let servers = describe_fastcgi(applications);
        if !servers.is_empty() {
            text.push('\n');
            text.push_str(&servers);
        }
    }
    if let Some(upstreams) = status.get("upstreams").and_then(Value::as_object).filter(|all| !all.is_empty()) {
        text.push('\n');
        text.push_str(&describe_upstreams(upstreams));
    }
    if let Some(domains) = status.get("certificates").and_then(Value::as_object).filter(|all| !all.is_empty()) {
        text.push('\n');
        text.push_str(&describe_certificates(domains));
    }
    text
}

/// Each domain, and why it has no new certificate.
fn describe_certificates(domains: &Map<String, Value>) -> String {
    let mut rows = vec![["domain", "certificate", "expires", "renewal"].map(str::to_owned)];
    let mut reasons = String::new();
    for (name, domain) in domains {
        let member = |name: &str| domain.get(name).and_then(Value::as_str).map_or("-".to_owned(), plain);
        rows.push([plain(name), member("state"), member("expires"), member("renewal")]);
        if let Some(error) = domain.get("last_error").and_then(Value::as_str) {
            let next = domain.get("next_attempt").and_then(Value::as_u64);
            let next = next.map(|seconds| format!("; next attempt in {seconds} s")).unwrap_or_default();
            reasons.push_str(&format!("{}: {}{next}\n", plain(name), plain(error)));
        }
    }
    with_reasons(table(&rows, &[0, 1, 2, 3]), &reasons)
}

fn describe_applications(applications: &Map<String, Value>) -> String {
    let mut rows =
        vec![["application", "running", "starting", "idle", "requests", "waiting", "refused"].map(str::to_owned)];
    let mut reasons = String::new();
    let mut add = |name: String, application: &Value| {
        let number = |pointer: &str| {
            application.pointer(pointer).and_then(Value::as_u64).map_or("-".to_owned(), |number| number.to_string())
        };
        if let Some(why) = application.pointer("/processes/auto/why").and_then(Value::as_str) {
            reasons.push_str(&format!("{name}: {why}\n"));
        }
        rows.push([
            name,
            number("/processes/running"),
            number("/processes/starting"),
            number("/processes/idle"),
            number("/requests/active"),
            number("/requests/waiting"),
            number("/requests/refused"),
        ]);
    };
    for (name, application) in applications {
        add(plain(name), application);
        for script in application.get("worker_scripts").and_then(Value::as_array).into_iter().flatten() {
            let label = script.get("script").and_then(Value::as_str).map_or("classic mode".to_owned(), plain);
            add(format!("{}: {label}", plain(name)), script);
        }
    }
    for (name, application) in applications {
        if let Some(reason) = reason_of_503(application) {
            reasons.push_str(&format!("{}: answers 503: {reason}\n", plain(name)));
        }
    }
    with_reasons(table(&rows, &[0]), &reasons)
}

/// The servers of FastCGI applications, and why one cannot be reached; empty if there are none.
fn describe_fastcgi(applications: &Map<String, Value>) -> String {
    let mut rows = vec![["fastcgi", "server", "state", "connections", "idle"].map(str::to_owned)];
    let mut reasons = String::new();
    for (name, application) in applications {
        for (address, server) in application.get("servers").and_then(Value::as_object).into_iter().flatten() {
            let number = |name: &str| server.get(name).and_then(Value::as_u64).unwrap_or_default().to_string();
            let state = server.get("state").and_then(Value::as_str).unwrap_or("-");
            rows.push([plain(name), plain(address), plain(state), number("connections"), number("idle")]);
            if let Some(reason) = server.get("reason").and_then(Value::as_str) {
                reasons.push_str(&format!("{}: {} is {state}: {}\n", plain(name), plain(address), plain(reason)));
            }
        }
    }
    if rows.len() == 1 { String::new() } else { with_reasons(table(&rows, &[0, 1, 2]), &reasons) }
}

/// Each server, and why it gets no requests.
pub fn describe_upstreams(upstreams: &Map<String, Value>) -> String {
    let mut rows = vec![["upstream", "server", "state", "requests"].map(str::to_owned)];
    let mut reasons = String::new();
    for (name, upstream) in upstreams {
        for (address, server) in upstream.get("servers").and_then(Value::as_object).into_iter().flatten() {
            let member = |name: &str| server.get(name).and_then(Value::as_str);
            let state = member("state").unwrap_or("-");
            let active =
                server.get("active").and_then(Value::as_u64).map_or("-".to_owned(), |active| active.to_string());
            rows.push([plain(name), plain(address), plain(state), active]);
            if let Some(reason) = member("reason") {
                reasons.push_str(&format!("{}: {} is {state}: {}\n", plain(name), plain(address), plain(reason)));
            }
        }
    }
    with_reasons(table(&rows, &[0, 1, 2]), &reasons)
}

fn with_reasons(table: String, reasons: &str) -> String {
    match reasons.is_empty() {
        true => table,
        false => format!("{table}\n{reasons}"),
    }
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
                "old": { "processes": {}, "failure": "no such folder" },
                "rest": { "processes": {}, "drained": true },
                "wp": { "processes": { "running": 2, "starting": 0 } },
            },
            "upstreams": {
                "api": {
                    "servers": {
                        "10.0.0.5:80": { "state": "up", "active": 12 },
                        "api-2.internal:80": { "state": "unhealthy", "reason": "it answered 500" },
                    },
                },
            },
            "certificates": {
                "blog.example": { "state": "temporary", "next_attempt": 60, "last_error": "the DNS has no address" },
                "shop.example": { "state": "valid", "expires": "Feb  3 2027 GMT", "renewal": "Jan  4 2027 GMT" },
            },
        });
        assert_eq!(
            describe(&status, Some(199.6)),
            "connections  13 active, 4 idle; 1067 accepted, 1050 closed\n\
             requests     1307 in total, 200/s\n\
             \n\
             application  running  starting  idle  requests  waiting  refused\n\
             a long name       14         0    10         4        1        7\n\
             old                -         -     -         -        -        -\n\
             rest               -         -     -         -        -        -\n\
             wp                 2         0     -         -        -        -\n\
             \n\
             a long name: 14 workers: 2 cores\n\
             old: answers 503: no such folder\n\
             rest: answers 503: it drains\n\
             \n\
             upstream  server             state      requests\n\
             api       10.0.0.5:80        up               12\n\
             api       api-2.internal:80  unhealthy         -\n\
             \n\
             api: api-2.internal:80 is unhealthy: it answered 500\n\
             \n\
             domain        certificate  expires          renewal\n\
             blog.example  temporary    -                -\n\
             shop.example  valid        Feb  3 2027 GMT  Jan  4 2027 GMT\n\
             \n\
             blog.example: the DNS has no address; next attempt in 60 s\n"
        );
        assert!(describe(&json!({}), None).ends_with("requests     - in total\n"));
    }

    #[test]
    fn each_of_several_worker_scripts_has_a_line() {
        let of = |running: u64| json!({ "running": running, "starting": 0, "idle": 1 });
        let status = json!({ "applications": { "shop": {
            "processes": of(3),
            "worker_scripts": [
                { "script": null, "processes": of(1) },
                { "script": "api.php", "processes": { "running": 2, "auto": { "why": "2 workers: 2 cores" } } },
            ],
        } } });
        let text = describe(&status, None);
        let table = text.split("\n\n").nth(1).unwrap();
        assert_eq!(
            table,
            "application         running  starting  idle  requests  waiting  refused\n\
             shop                      3         0     1         -        -        -\n\
             shop: classic mode        1         0     1         -        -        -\n\
             shop: api.php             2         -     -         -        -        -"
        );
        assert!(text.ends_with("\nshop: api.php: 2 workers: 2 cores\n"), "{text}");
    }

    #[test]
    fn the_servers_of_fastcgi_applications_have_a_table() {
        let status = json!({ "applications": { "shop": {
            "processes": { "running": 0, "starting": 0, "idle": 0 },
            "requests": { "active": 3, "waiting": 1, "refused": 0 },
            "servers": {
                "127.0.0.1:9000": { "state": "up", "connections": 2, "idle": 1 },
                "unix:/run/php.sock": { "state": "down", "connections": 0, "idle": 0, "reason": "No such file" },
            },
        } } });
        let expected = "application  running  starting  idle  requests  waiting  refused\n\
             shop               0         0     0         3        1        0\n\
             \n\
             fastcgi  server              state  connections  idle\n\
             shop     127.0.0.1:9000      up               2     1\n\
             shop     unix:/run/php.sock  down             0     0\n\
             \n\
             shop: unix:/run/php.sock is down: No such file\n";
        assert!(describe(&status, None).ends_with(expected), "{}", describe(&status, None));
    }

    #[test]
    fn the_rate_after_a_router_restart_is_not_negative() {
        let total = |total: u64| json!({ "requests": { "total": total } });
        assert_eq!(rate(&total(100), &total(500), Duration::from_secs(2)), 200.0);
        assert_eq!(rate(&total(100), &total(5), Duration::from_secs(1)), 0.0);
    }
}
