//! `howdah top`: what the applications and each of their workers do now, as tables that are printed every second.
//!
//! - [`summary`]: the numbers of applications
//! - here: the workers

mod summary;

use crate::control_client::traffic::{Counters, Rates, Window};
use crate::control_client::{ApiOptions, ControlApi, name_segment};
use crate::terminal::output;
use crate::terminal::plain::{bytes, plain, text};
use crate::terminal::table::table;
use crate::terminal::watch::{self, Report};
use clap::Args;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::time::{Duration, Instant};

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

/// One reading of the control API.
struct Reading {
    status: Value,
    /// The processes of each application, by its name.
    processes: Map<String, Value>,
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
        let mut window = Window::default();
        if self.once {
            read(&api, application, &mut window)?;
            std::thread::sleep(CPU_INTERVAL);
            let reading = read(&api, application, &mut window)?;
            match report(reading, window.rates().as_ref(), application, self.json) {
                Report::Json(value) => output::print_json(&format!("{value:#}\n")),
                Report::Text(text) => output::print(&text),
            }
            return Ok(());
        }
        watch::watch(|| {
            let reading = read(&api, application, &mut window)?;
            Ok(report(reading, window.rates().as_ref(), application, self.json))
        })
    }
}

fn report(reading: Reading, rates: Option<&Rates>, application: Option<&str>, json: bool) -> Report {
    let Reading { status, mut processes } = reading;
    if !json {
        return Report::Text(format!("{}\n{}", summary::describe(&status, rates, application), describe(&processes)));
    }
    for (name, value) in &mut processes {
        value["rates"] = rates.and_then(|rates| rates.of_application(name)).into();
    }
    Report::Json(Value::Object(processes))
}

fn read(api: &ControlApi, application: Option<&str>, window: &mut Window) -> Result<Reading, String> {
    let status: Value = api.get("/status")?.accepted(None)?.json()?;
    let metrics = api.get("/metrics")?;
    // An older howdah has no metrics.
    if metrics.rejection().is_none() {
        window.add(Counters::read(&metrics.body), Instant::now());
    }
    let processes = read_processes(api, &status, application)?;
    Ok(Reading { status, processes })
}

fn read_processes(api: &ControlApi, status: &Value, application: Option<&str>) -> Result<Map<String, Value>, String> {
    let names = match application {
        Some(name) => vec![name.to_owned()],
        None => status
            .get("applications")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
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
    use crate::control_client::connection::tests::api;
    use serde_json::json;

    #[test]
    fn an_application_that_is_removed_meanwhile_is_skipped() {
        let api = api(vec![
            ("/status", (200, r#"{"applications": {"blog": {}, "shop": {}}}"#)),
            ("/status/applications/shop/processes", (200, r#"{"workers": []}"#)),
        ]);
        let read = |application| read(&api, application, &mut Window::default()).map(|reading| reading.processes);
        assert_eq!(read(None).map(Value::Object), Ok(json!({ "shop": { "workers": [] } })));
        assert_eq!(read(Some("blog")), Err("None.".to_owned()));
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
