//! `howdah top`: what each worker does now, as a table that is printed every second.

use crate::api::{ApiOptions, ControlApi, application_names, name_segment};
use crate::terminal::output;
use crate::terminal::plain::{bytes, plain, text};
use crate::terminal::table::table;
use crate::terminal::watch::{self, Report};
use clap::Args;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::time::Duration;

/// The options of `howdah top`.
#[derive(Debug, Args)]
pub struct TopOptions {
    #[command(flatten)]
    api: ApiOptions,
    /// The application's name. Default: all applications.
    #[arg(value_name = "APP")]
    application: Option<String>,
    /// Print it once instead of every second.
    #[arg(long)]
    once: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Time between the two requests of `--once`: howdah measures CPU between two requests.
const CPU_INTERVAL: Duration = Duration::from_millis(300);
/// The columns, and the indexes of those that are text.
const COLUMNS: [&str; 8] = ["application", "pid", "state", "seconds", "CPU %", "memory", "requests", "request"];
const TEXT_COLUMNS: [usize; 3] = [0, 2, 7];

// === impl TopOptions ===

impl TopOptions {
    /// Prints the workers, once or every second.
    ///
    /// # Errors
    /// The control API gives no valid response, or has no such application.
    pub fn run(&self) -> Result<(), String> {
        let (api, application) = (ControlApi::new(&self.api)?, self.application.as_deref());
        if self.once { print(&api, application, self.json) } else { watch(&api, application, self.json) }
    }
}

fn print(api: &ControlApi, application: Option<&str>, json: bool) -> Result<(), String> {
    fetch(api, application)?;
    std::thread::sleep(CPU_INTERVAL);
    let all = fetch(api, application)?;
    output::print(&if json { format!("{:#}\n", Value::Object(all)) } else { describe(&all) });
    Ok(())
}

fn watch(api: &ControlApi, application: Option<&str>, json: bool) -> Result<(), String> {
    watch::watch(|| {
        let all = fetch(api, application)?;
        Ok(if json { Report::Json(Value::Object(all)) } else { Report::Text(describe(&all)) })
    })
}

/// The processes of each application, by its name.
fn fetch(api: &ControlApi, application: Option<&str>) -> Result<Map<String, Value>, String> {
    let names = match application {
        Some(name) => vec![name.to_owned()],
        None => application_names(api)?,
    };
    let mut all = Map::new();
    for name in names {
        let path = format!("/status/applications/{}/processes", name_segment(&name)?);
        let response = api.get(&path)?;
        // The application was removed after the list of names was read.
        if application.is_none() && response.is_not_found() {
            continue;
        }
        all.insert(name, response.accepted(None)?.json()?);
    }
    Ok(all)
}

fn describe(all: &Map<String, Value>) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for (name, processes) in all {
        let mut workers: Vec<_> = processes.get("workers").and_then(Value::as_array).into_iter().flatten().collect();
        // The longest-running requests come first.
        workers.sort_by_key(|worker| {
            let seconds = worker.get("seconds").and_then(Value::as_f64).unwrap_or(-1.0);
            (Reverse((seconds * 1000.0) as i64), worker.get("pid").and_then(Value::as_u64))
        });
        rows.extend(workers.into_iter().map(|worker| row(name, worker)));
    }
    table(&rows, &TEXT_COLUMNS)
}

fn row(application: &str, worker: &Value) -> [String; COLUMNS.len()] {
    let number = |name: &str| worker.get(name).and_then(Value::as_f64);
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let request = match (text(worker, "method"), text(worker, "script")) {
        (method, _) if method.is_empty() => String::new(),
        (method, script) => {
            // In async mode a worker runs several requests.
            let others = worker.get("running").and_then(Value::as_u64).filter(|running| *running > 1);
            let others = others.map(|running| format!(", and {} more", running - 1)).unwrap_or_default();
            format!("{method} {}  ({script}){others}", text(worker, "url"))
        }
    };
    let worker_script = worker.get("worker_script").and_then(Value::as_str);
    let script = worker_script.map(|script| format!(": {}", plain(script))).unwrap_or_default();
    [
        format!("{}{script}", plain(application)),
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
    use crate::api::connection::tests::api;
    use serde_json::json;

    #[test]
    fn an_application_that_is_removed_meanwhile_is_skipped() {
        let api = api(vec![
            ("/status", (200, r#"{"applications": {"blog": {}, "shop": {}}}"#)),
            ("/status/applications/shop/processes", (200, r#"{"workers": []}"#)),
        ]);
        assert_eq!(fetch(&api, None).map(Value::Object), Ok(json!({ "shop": { "workers": [] } })));
        assert_eq!(fetch(&api, Some("blog")), Err("None.".to_owned()));
    }

    #[test]
    fn the_longest_running_come_first_and_text_is_escaped() {
        let all = json!({ "shop": { "workers": [
            { "pid": 9, "state": "idle", "method": null, "seconds": null, "cpu": 0.0, "memory": 2097152, "requests": 12 },
            { "pid": 11, "state": "busy", "running": 37, "method": "GET", "url": "/b", "script": "/s/b.php", "seconds": 20.0,
              "cpu": 0.5, "memory": 5242880, "requests": 8 },
            { "pid": 10, "state": "busy", "running": 1, "method": "GET", "url": "/a\u{1b}[2J", "script": "/s/a.php", "seconds": 12.34,
              "cpu": 0.951, "memory": 5242880, "requests": 7 },
            { "pid": null, "state": "starting", "worker_script": "api.php", "seconds": null, "cpu": null, "memory": null, "requests": null },
        ] } });
        assert_eq!(
            describe(all.as_object().unwrap()),
            "application    pid  state     seconds  CPU %   memory  requests  request\n\
             shop            11  busy         20.0     50  5.0 MiB         8  GET /b  (/s/b.php), and 36 more\n\
             shop            10  busy         12.3     95  5.0 MiB         7  GET /a\\u{1b}[2J  (/s/a.php)\n\
             shop: api.php    -  starting        -      -        -         -\n\
             shop             9  idle            -      0  2.0 MiB        12\n"
        );
    }
}
