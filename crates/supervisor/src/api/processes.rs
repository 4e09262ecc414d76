//! `GET /status/applications/NAME/processes`: what each process of an application does, for `howdah top`.

use crate::control::Control;
use crate::generation::process_report::ProcessReport;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The processes of an application, including those of its former generations while they drain.
pub fn of(name: &str, control: &mut Control) -> Value {
    let now = Instant::now();
    let served = control.served().generations.get(name).copied();
    let generations = control.runtime.generations.iter_mut().filter(|generation| generation.name() == name);
    generations
        .flat_map(|generation| {
            let drains = Some(generation.id()) != served;
            generation.process_reports(drains, now)
        })
        .map(describe)
        .collect()
}

fn describe(report: ProcessReport) -> Value {
    json!({
        "pid": report.pid,
        "state": report.state.name(),
        "running": report.running,
        "method": report.method,
        "url": report.url,
        "script": report.script,
        "worker_script": report.worker_script,
        "seconds": report.running_for.map(rounded),
        "cpu": report.cpu_share,
        "cpu_seconds": report.cpu_time.map(rounded),
        "memory": report.private_bytes,
        "requests": report.requests,
    })
}

/// In seconds, to the millisecond.
fn rounded(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}
