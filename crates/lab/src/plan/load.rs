//! The loads of a lab.

use super::file::{ChecksFile, LoadFile, QuickFile, RecordedFile, TargetObject, part};
use super::stack::is_name;
use crate::load::autostop::Condition;
use crate::load::recorded::{from_access_log, from_har};
use crate::load::schedule::Schedule;
use crate::load::target::{Checks, Target};
use crate::load::{Pace, duration};
use crate::results::{LoadDescription, LoadKind, Objective, RequestDescription};
use regex::bytes::Regex;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A load of a lab.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Its name in the lab.
    pub name: String,
    /// Its name for people.
    pub label: String,
    /// When requests are sent.
    pub pace: Pace,
    /// The requests.
    pub targets: Vec<Target>,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// The time-out of a request.
    pub timeout: Duration,
    /// The time before the measurement.
    pub warm_up: Duration,
    /// Conditions that end a run before its time, as they were written.
    pub autostop: Vec<(String, Condition)>,
    /// The objective.
    pub objective: Option<Objective>,
    /// Whether each client returns the cookies that it received.
    pub keeps_cookies: bool,
    /// Values of `Cookie` for the clients in turn.
    pub sessions: Vec<String>,
    /// Whether the stack is started again before this load.
    pub is_fresh: bool,
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_WARM_UP: Duration = Duration::from_secs(2);
/// The limit of connections of an open loop.
const DEFAULT_CONNECTIONS: u32 = 1000;
const MAX_CONNECTIONS: u32 = 50_000;
const QUICK_DURATION: Duration = Duration::from_secs(5);
const QUICK_WARM_UP: Duration = Duration::from_millis(500);

/// Reads the loads. `common` are the targets and checks of loads and targets without their own.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read(
    files: &[LoadFile],
    common: (Option<&Value>, &ChecksFile),
    quick: Option<&QuickFile>,
    folder: &Path,
) -> Result<Vec<LoadPlan>, String> {
    if files.is_empty() {
        return Err(
            "loads: an empty list; write for example {\"name\": \"c50\", \"connections\": 50, \"duration\": \"10s\"}"
                .to_owned(),
        );
    }
    let checks = read_checks(common.1).map_err(|reason| format!("checks{reason}"))?;
    let mut loads: Vec<LoadPlan> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let place = format!("loads[{index}]");
        let load = read_one(file, common.0, &checks, quick, folder).map_err(|reason| format!("{place}/{reason}"))?;
        if loads.iter().any(|other| other.name == load.name) {
            return Err(format!("{place}/name: {:?} is the name of an earlier load, too", load.name));
        }
        loads.push(load);
    }
    Ok(loads)
}

/// An objective such as `p99 < 200ms, errors < 0.1%`.
///
/// # Errors
/// The text is not one.
pub fn parse_objective(text: &str) -> Result<Objective, String> {
    let wrong = || format!("{text:?} is not an objective; write for example \"p99 < 200ms, errors < 0.1%\"");
    let (mut latency, mut error_share) = (None, 0.01);
    for part in text.split(',') {
        let (name, limit) = part.split_once('<').ok_or_else(wrong)?;
        let (name, limit) = (name.trim(), limit.trim());
        if let Some(percentile) = name.strip_prefix('p') {
            let percentile: f64 = percentile.parse().map_err(|_| wrong())?;
            if !(0.0..=100.0).contains(&percentile) {
                return Err(wrong());
            }
            latency = Some((percentile, duration::parse(limit)?));
        } else if name == "errors" {
            let percent: f64 = limit.strip_suffix('%').and_then(|text| text.trim().parse().ok()).ok_or_else(wrong)?;
            error_share = percent / 100.0;
        } else {
            return Err(wrong());
        }
    }
    let (percentile, limit) = latency.ok_or_else(wrong)?;
    Ok(Objective { percentile, milliseconds: limit.as_secs_f64() * 1000.0, error_share })
}

fn read_one(
    file: &LoadFile,
    common: Option<&Value>,
    checks: &Checks,
    quick: Option<&QuickFile>,
    folder: &Path,
) -> Result<LoadPlan, String> {
    if !is_name(&file.name) {
        return Err(format!("name: {:?} has other characters than a to z, 0 to 9 and -", file.name));
    }
    let time = |value: &Option<String>, name: &str, default: Duration| match value {
        Some(text) => duration::parse(text).map_err(|reason| format!("{name}: {reason}")),
        None => Ok(default),
    };
    let mut pace = read_pace(file)?;
    let mut warm_up = time(&file.warm_up, "warm_up", DEFAULT_WARM_UP)?;
    if let Some(quick) = quick {
        let longest = time(&quick.duration, "quick/duration", QUICK_DURATION)?;
        pace = quickened(pace, longest, quick.requests);
        warm_up = warm_up.min(QUICK_WARM_UP);
    }
    let default = Value::Array(vec![Value::String("/".to_owned())]);
    let targets = file.targets.as_ref().or(common).unwrap_or(&default);
    let condition = |text: &String| Ok((text.clone(), text.parse().map_err(|reason| format!("autostop: {reason}"))?));
    let sessions = match &file.sessions {
        Some(path) => {
            let text = read_text(&folder.join(path)).map_err(|reason| format!("sessions: {reason}"))?;
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        None => Vec::new(),
    };
    Ok(LoadPlan {
        name: file.name.clone(),
        label: file.label.clone().unwrap_or_else(|| label(&pace, file.keep_alive.unwrap_or(true))),
        pace,
        targets: read_targets(targets, checks, folder)?,
        keep_alive: file.keep_alive.unwrap_or(true),
        timeout: time(&file.timeout, "timeout", DEFAULT_TIMEOUT)?,
        warm_up,
        autostop: file.autostop.iter().map(condition).collect::<Result<_, String>>()?,
        objective: file.objective.as_deref().map(parse_objective).transpose().map_err(|e| format!("objective: {e}"))?,
        keeps_cookies: file.cookies,
        sessions,
        is_fresh: file.fresh,
    })
}

fn read_pace(file: &LoadFile) -> Result<Pace, String> {
    let connections = file.connections.unwrap_or(DEFAULT_CONNECTIONS);
    if !(1..=MAX_CONNECTIONS).contains(&connections) {
        return Err(format!("connections: a number from 1 to {MAX_CONNECTIONS}"));
    }
    match (&file.schedule, &file.duration, file.requests) {
        (Some(schedule), None, None) => {
            let schedule: Schedule = schedule.parse().map_err(|reason| format!("schedule: {reason}"))?;
            Ok(Pace::Open { schedule, connections })
        }
        (Some(_), ..) => Err("schedule: it has its own times; leave out duration and requests".to_owned()),
        (None, None, None) => {
            Err("schedule: write a schedule, or connections with a duration or a number of requests".to_owned())
        }
        (None, ..) if file.connections.is_none() => Err("connections: write the number of clients".to_owned()),
        (None, _, Some(0)) => Err("requests: at least 1".to_owned()),
        (None, length, requests) => {
            let length =
                length.as_deref().map(duration::parse).transpose().map_err(|reason| format!("duration: {reason}"))?;
            if length.is_some_and(|length| length.is_zero()) {
                return Err("duration: longer than 0".to_owned());
            }
            Ok(Pace::Closed { connections, length, requests })
        }
    }
}

/// The same load in a shorter time.
fn quickened(pace: Pace, longest: Duration, most_requests: Option<u64>) -> Pace {
    match pace {
        Pace::Open { schedule, connections } => {
            let factor = (longest.as_secs_f64() / schedule.length().as_secs_f64().max(1e-9)).min(1.0);
            Pace::Open { schedule: if factor < 1.0 { schedule.shortened(factor) } else { schedule }, connections }
        }
        Pace::Closed { connections, length, requests } => Pace::Closed {
            connections,
            length: length.map(|length| length.min(longest)),
            requests: requests.map(|requests| most_requests.unwrap_or(requests.div_ceil(10)).min(requests).max(1)),
        },
    }
}

fn label(pace: &Pace, keep_alive: bool) -> String {
    let kept = if keep_alive { "" } else { ", a new connection for each request" };
    match pace {
        Pace::Open { schedule, .. } => format!("{schedule}{kept}"),
        Pace::Closed { connections, length, requests } => {
            let length = length.map(|length| format!(", {}", duration::format(length))).unwrap_or_default();
            let requests = requests.map(|requests| format!(", {requests} requests")).unwrap_or_default();
            format!("{connections} connections{length}{requests}{kept}")
        }
    }
}

/// The requests of a load: a list of paths and objects, or a recording.
///
/// # Errors
/// The message begins with `targets`.
pub fn read_targets(value: &Value, checks: &Checks, folder: &Path) -> Result<Vec<Target>, String> {
    let targets = if let Value::Array(values) = value {
        let read = |(index, value)| read_target(value, checks, folder).map_err(|e| format!("targets[{index}]/{e}"));
        values.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?
    } else {
        match part(value).map_err(|reason| format!("targets: {reason}"))? {
            RecordedFile { access_log: Some(path), har: None } => {
                let text = read_text(&folder.join(&path)).map_err(|reason| format!("targets/access_log: {reason}"))?;
                from_access_log(&text, checks).map_err(|reason| format!("targets/access_log: {path}: {reason}"))?
            }
            RecordedFile { access_log: None, har: Some(path) } => {
                let text = read_text(&folder.join(&path)).map_err(|reason| format!("targets/har: {reason}"))?;
                from_har(&text, checks).map_err(|reason| format!("targets/har: {path}: {reason}"))?
            }
            _ => return Err("targets: write a list of paths, or access_log, or har".to_owned()),
        }
    };
    if targets.is_empty() {
        return Err("targets: an empty list; write for example [\"/\"]".to_owned());
    }
    Ok(targets)
}

fn read_target(value: &Value, checks: &Checks, folder: &Path) -> Result<Target, String> {
    if let Value::String(path) = value {
        return Ok(Target { checks: checks.clone(), ..Target::get(&read_path(path)?) });
    }
    let TargetObject { path, method, weight, headers, body, body_file, checks: own } = part(value)?;
    let body = match (body, body_file) {
        (Some(_), Some(_)) => return Err("body: write body or body_file, not both".to_owned()),
        (Some(body), None) => body.into_bytes(),
        (None, Some(path)) => {
            let path = folder.join(path);
            fs::read(&path).map_err(|error| format!("body_file: {}", crate::reason::at(&path, &error)))?
        }
        (None, None) => Vec::new(),
    };
    if weight == Some(0) {
        return Err("weight: at least 1".to_owned());
    }
    let method = method.unwrap_or_else(|| "GET".to_owned());
    if method.is_empty() || !method.chars().all(|c| c.is_ascii_uppercase()) {
        return Err(format!("method: {method:?} is not a method such as \"POST\""));
    }
    let is_wrong =
        |(name, value): &(&String, &String)| name.contains([':', ' ', '\r', '\n']) || value.contains(['\r', '\n']);
    if let Some((name, _)) = headers.iter().find(is_wrong) {
        return Err(format!("headers: {name:?} is not the name of a header field, or its value has a line end"));
    }
    Ok(Target {
        method,
        path: read_path(&path)?,
        headers: headers.into_iter().collect(),
        body,
        weight: weight.unwrap_or(1),
        checks: match own {
            Some(own) => read_checks(&own).map_err(|reason| format!("checks{reason}"))?,
            None => checks.clone(),
        },
    })
}

fn read_path(path: &str) -> Result<String, String> {
    if !path.starts_with('/') || path.contains([' ', '\r', '\n', '#']) {
        return Err(format!("path: {path:?} does not begin with /, or has a space; write it as a browser sends it"));
    }
    Ok(path.to_owned())
}

/// Checks of responses.
///
/// # Errors
/// The message begins with the path of the wrong value.
pub fn read_checks(file: &ChecksFile) -> Result<Checks, String> {
    let matches = file.matches.as_deref().map(Regex::new).transpose();
    if let Some(status) = file.status.iter().find(|status| !(100..600).contains(*status)) {
        return Err(format!("/status: {status} is not a status"));
    }
    Ok(Checks {
        statuses: file.status.clone(),
        headers: file.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect(),
        contains: file.contains.clone(),
        lacks: file.lacks.clone(),
        matches: matches.map_err(|error| format!("/matches: {error}"))?,
        length: file.bytes,
    })
}

fn read_text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| crate::reason::at(path, &error))
}

// === impl LoadPlan ===

impl LoadPlan {
    /// Whether its rates are percents of a capacity.
    pub fn is_relative(&self) -> bool {
        matches!(&self.pace, Pace::Open { schedule, .. } if schedule.is_relative())
    }

    /// The load at this capacity, in requests per second.
    pub fn at_capacity(&self, capacity: f64) -> LoadPlan {
        match &self.pace {
            Pace::Open { schedule, connections } => {
                let pace = Pace::Open { schedule: schedule.at_capacity(capacity), connections: *connections };
                LoadPlan { pace, ..self.clone() }
            }
            Pace::Closed { .. } => self.clone(),
        }
    }

    /// The load in this time. One that ends with a number of requests stays.
    pub fn lasting(&self, length: Duration) -> LoadPlan {
        let pace = match self.pace.clone() {
            Pace::Open { schedule, connections } => {
                let factor = length.as_secs_f64() / schedule.length().as_secs_f64().max(1e-9);
                Pace::Open { schedule: schedule.shortened(factor), connections }
            }
            Pace::Closed { connections, length: Some(_), requests } => {
                Pace::Closed { connections, length: Some(length), requests }
            }
            by_requests => by_requests,
        };
        // One that was written stays.
        let is_written = self.label != label(&self.pace, self.keep_alive);
        let label = if is_written { self.label.clone() } else { label(&pace, self.keep_alive) };
        LoadPlan { pace, label, ..self.clone() }
    }

    /// As results.json has it.
    pub fn describe(&self) -> LoadDescription {
        let kind = match &self.pace {
            Pace::Open { schedule, connections } => LoadKind::Open {
                schedule: schedule.to_string(),
                planned: schedule.requests(),
                duration_seconds: schedule.length().as_secs_f64(),
                peak_rate: schedule.peak_rate(),
                connections: *connections,
            },
            Pace::Closed { connections, length, requests } => LoadKind::Closed {
                connections: *connections,
                duration_seconds: length.map(|length| length.as_secs_f64()),
                requests: *requests,
            },
        };
        let describe = |target: &Target| RequestDescription {
            method: target.method.clone(),
            path: target.path.clone(),
            weight: target.weight,
            checks: target.checks.describe(),
        };
        LoadDescription {
            name: self.name.clone(),
            label: self.label.clone(),
            kind,
            keep_alive: self.keep_alive,
            timeout_seconds: self.timeout.as_secs_f64(),
            warm_up_seconds: self.warm_up.as_secs_f64(),
            targets: self.targets.iter().map(describe).collect(),
            autostop: self.autostop.iter().map(|(text, _)| text.clone()).collect(),
            objective: self.objective,
        }
    }
}
