//! `howdah top`: what each worker does now, as a table that is drawn anew each second.

use crate::client::connection::Server;
use crate::client::plain::{bytes, plain, text};
use crate::client::segment;
use crate::client::status::application_names;
use crate::client::table::table;
use crate::client::watch::{self, Found};
use crate::output;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::time::Duration;

/// A share of a processor is of the time between two looks.
const TWO_LOOKS: Duration = Duration::from_millis(300);
/// The columns, and which of them are no numbers.
const COLUMNS: [&str; 8] = ["application", "pid", "state", "seconds", "CPU %", "memory", "requests", "request"];
const TEXTS: [usize; 3] = [0, 2, 7];

/// Prints it once.
///
/// # Errors
/// When howdah gives no answer.
pub fn once(server: &Server, application: Option<&str>, json: bool) -> Result<(), String> {
    fetch(server, application)?;
    std::thread::sleep(TWO_LOOKS);
    let all = fetch(server, application)?;
    output::print(&if json { format!("{:#}\n", Value::Object(all)) } else { describe(&all) });
    Ok(())
}

/// Prints it again and again; returns only if it cannot, or nobody reads it.
///
/// # Errors
/// When howdah gives no answer.
pub fn watch(server: &Server, application: Option<&str>, json: bool) -> Result<(), String> {
    watch::watch(|| {
        let all = fetch(server, application)?;
        Ok(if json { Found::Json(Value::Object(all)) } else { Found::Text(describe(&all)) })
    })
}

/// The processes of each application, by its name.
fn fetch(server: &Server, application: Option<&str>) -> Result<Map<String, Value>, String> {
    let names = match application {
        Some(name) => vec![name.to_owned()],
        None => application_names(server)?,
    };
    let mut all = Map::new();
    for name in names {
        let path = format!("/status/applications/{}/processes", segment(&name)?);
        let answer = server.ask("GET", &path, None, Vec::new())?;
        // Nobody asked for it by name, and it has been removed since the list was made.
        if application.is_none() && answer.is_not_found() {
            continue;
        }
        let body = answer.succeeded(None)?.body;
        let processes = serde_json::from_str(&body).map_err(|error| format!("the answer is not JSON: {error}"))?;
        all.insert(name, processes);
    }
    Ok(all)
}

fn describe(all: &Map<String, Value>) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for (name, processes) in all {
        let mut workers: Vec<_> = processes.get("workers").and_then(Value::as_array).into_iter().flatten().collect();
        // Those that have been busy for longest come first.
        workers.sort_by_key(|worker| {
            let seconds = worker.get("seconds").and_then(Value::as_f64).unwrap_or(-1.0);
            (Reverse((seconds * 1000.0) as i64), worker.get("pid").and_then(Value::as_u64))
        });
        rows.extend(workers.into_iter().map(|worker| row(name, worker)));
    }
    table(&rows, &TEXTS)
}

fn row(application: &str, worker: &Value) -> [String; COLUMNS.len()] {
    let number = |name: &str| worker.get(name).and_then(Value::as_f64);
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let request = match (text(worker, "method"), text(worker, "script")) {
        (method, _) if method.is_empty() => String::new(),
        (method, script) => format!("{method} {}  ({script})", text(worker, "url")),
    };
    [
        plain(application),
        shown(number("pid").map(|pid| pid.to_string())),
        text(worker, "state"),
        shown(number("seconds").map(|seconds| format!("{seconds:.1}"))),
        shown(number("cpu").map(|share| format!("{:.0}", share * 100.0))),
        shown(number("memory").map(|memory| bytes(memory as u64))),
        shown(number("requests").map(|requests| requests.to_string())),
        request,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::connection::tests::api;
    use serde_json::json;

    #[test]
    fn an_application_that_is_removed_meanwhile_is_left_out() {
        let server = api(vec![
            ("/status", (200, r#"{"applications": {"blog": {}, "shop": {}}}"#)),
            ("/status/applications/shop/processes", (200, r#"{"workers": []}"#)),
        ]);
        assert_eq!(fetch(&server, None).map(Value::Object), Ok(json!({ "shop": { "workers": [] } })));
        assert!(fetch(&server, Some("blog")).is_err());
    }

    #[test]
    fn the_busiest_come_first_and_nothing_reaches_the_terminal() {
        let all = json!({ "shop": { "workers": [
            { "pid": 9, "state": "idle", "method": null, "seconds": null, "cpu": 0.0, "memory": 2097152, "requests": 12 },
            { "pid": 10, "state": "busy", "method": "GET", "url": "/a\u{1b}[2J", "script": "/s/a.php", "seconds": 12.34,
              "cpu": 0.951, "memory": 5242880, "requests": 7 },
            { "pid": null, "state": "starting", "seconds": null, "cpu": null, "memory": null, "requests": null },
        ] } });
        assert_eq!(
            describe(all.as_object().unwrap()),
            "application  pid  state     seconds  CPU %   memory  requests  request\n\
             shop          10  busy         12.3     95  5.0 MiB         7  GET /a\\u{1b}[2J  (/s/a.php)\n\
             shop           -  starting        -      -        -         -\n\
             shop           9  idle            -      0  2.0 MiB        12\n"
        );
    }
}
