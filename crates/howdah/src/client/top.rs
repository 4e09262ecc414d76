//! `howdah top`: what each worker does now, as a table that is drawn anew each second.

use crate::client::connection::Server;
use crate::client::plain::{bytes, text};
use crate::client::{application_names, segment};
use crate::output;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How often the table is drawn.
const PERIOD: Duration = Duration::from_secs(1);
/// A share of a processor is of the time between two looks.
const TWO_LOOKS: Duration = Duration::from_millis(300);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints it once.
///
/// # Errors
/// When howdah gives no answer.
pub fn once(server: &Server, application: Option<&str>, json: bool) -> Result<(), String> {
    fetch(server, application)?;
    std::thread::sleep(TWO_LOOKS);
    let all = fetch(server, application)?;
    output::print(&if json { format!("{:#}\n", Value::Object(all)) } else { table(&all) });
    Ok(())
}

/// Prints it again and again; returns only if it cannot, or nobody reads it.
///
/// # Errors
/// When howdah gives no answer.
pub fn watch(server: &Server, application: Option<&str>, json: bool) -> Result<(), String> {
    loop {
        let all = fetch(server, application)?;
        let printed = match (json, rustix::termios::tcgetwinsize(io::stdout())) {
            (true, _) => output::try_print(&format!("{}\n", Value::Object(all))),
            (false, Ok(size)) if io::stdout().is_terminal() => {
                output::try_print(&format!("{CLEAR}{}", fitting(&table(&all), size.ws_col, size.ws_row)))
            }
            (false, _) => output::try_print(&format!("{}\n", table(&all))),
        };
        if printed.is_err() {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
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
        let body = server.ask("GET", &path, None, Vec::new())?.succeeded(None)?.body;
        let processes = serde_json::from_str(&body).map_err(|error| format!("the answer is not JSON: {error}"))?;
        all.insert(name, processes);
    }
    Ok(all)
}

fn table(all: &Map<String, Value>) -> String {
    let mut rows = vec![
        ["application", "pid", "state", "seconds", "CPU %", "memory", "requests", "request"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (name, processes) in all {
        let mut workers: Vec<_> = processes.get("workers").and_then(Value::as_array).into_iter().flatten().collect();
        // Those that have been busy for longest come first.
        workers.sort_by_key(|worker| {
            let seconds = worker.get("seconds").and_then(Value::as_f64).unwrap_or(-1.0);
            (Reverse((seconds * 1000.0) as i64), worker.get("pid").and_then(Value::as_u64))
        });
        rows.extend(workers.into_iter().map(|worker| row(name, worker)));
    }
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            match column {
                0 | 2 => text.push_str(&format!("{cell:<width$}  ", width = widths[column])),
                1 | 3..=6 => text.push_str(&format!("{cell:>width$}  ", width = widths[column])),
                _ => text.push_str(cell),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(application: &str, worker: &Value) -> Vec<String> {
    let number = |name: &str| worker.get(name).and_then(Value::as_f64);
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let request = match (text(worker, "method"), text(worker, "script")) {
        (method, _) if method.is_empty() => String::new(),
        (method, script) => format!("{method} {}  ({script})", text(worker, "url")),
    };
    vec![
        crate::client::plain::plain(application),
        shown(number("pid").map(|pid| pid.to_string())),
        text(worker, "state"),
        shown(number("seconds").map(|seconds| format!("{seconds:.1}"))),
        shown(number("cpu").map(|share| format!("{:.0}", share * 100.0))),
        shown(number("memory").map(|memory| bytes(memory as u64))),
        shown(number("requests").map(|requests| requests.to_string())),
        request,
    ]
}

/// As much of it as a terminal of this size can show.
fn fitting(table: &str, columns: u16, rows: u16) -> String {
    let lines = table.lines().take(usize::from(rows.max(2)) - 1);
    lines.map(|line| line.chars().take(usize::from(columns.max(20))).chain(['\n']).collect::<String>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_busiest_come_first_and_nothing_reaches_the_terminal() {
        let all = json!({ "shop": { "workers": [
            { "pid": 9, "state": "idle", "method": null, "seconds": null, "cpu": 0.0, "memory": 2097152, "requests": 12 },
            { "pid": 10, "state": "busy", "method": "GET", "url": "/a\u{1b}[2J", "script": "/s/a.php", "seconds": 12.34,
              "cpu": 0.951, "memory": 5242880, "requests": 7 },
            { "pid": null, "state": "starting", "seconds": null, "cpu": null, "memory": null, "requests": null },
        ] } });
        let table = table(all.as_object().unwrap());
        assert_eq!(
            table,
            "application  pid  state     seconds  CPU %   memory  requests  request\n\
             shop          10  busy         12.3     95  5.0 MiB         7  GET /a\\u{1b}[2J  (/s/a.php)\n\
             shop           -  starting        -      -        -         -\n\
             shop           9  idle            -      0  2.0 MiB        12\n"
        );
        assert_eq!(fitting(&table, 30, 3).lines().map(str::len).collect::<Vec<_>>(), [30, 30]);
    }
}
