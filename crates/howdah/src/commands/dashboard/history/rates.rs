//! Two readings of the control API become a sample.

use crate::commands::dashboard::history::record::{Numbers, Sample, Work};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// The workers of an application at a time.
#[derive(Debug)]
pub struct Workers {
    /// When they were read.
    pub at: Instant,
    /// By their process ids. A worker that starts is left out.
    by_pid: HashMap<u64, Worker>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    requests: u64,
    cpu_seconds: f64,
    memory: u64,
    /// It gets no more requests: former generations drain.
    is_leaving: bool,
}

/// The counters of a status.
#[derive(Debug)]
pub struct Counters {
    /// When they were read.
    pub at: Instant,
    requests: u64,
    refused: BTreeMap<String, u64>,
}

// === impl Workers ===

impl Workers {
    /// From the answer of the control API.
    pub fn of(processes: &Value, at: Instant) -> Workers {
        let workers = processes.get("workers").and_then(Value::as_array).into_iter().flatten();
        let by_pid = workers.filter_map(|worker| {
            let number = |name: &str| worker.get(name).and_then(Value::as_u64);
            let cpu_seconds = worker.get("cpu_seconds").and_then(Value::as_f64).unwrap_or_default();
            let (requests, memory) = (number("requests").unwrap_or_default(), number("memory").unwrap_or_default());
            let is_leaving = worker.get("state").is_some_and(|state| state == "leaving");
            Some((number("pid")?, Worker { requests, cpu_seconds, memory, is_leaving }))
        });
        Workers { at, by_pid: by_pid.collect() }
    }

    /// The work since a former reading. Requests that a worker finished between the former reading and its exit are not
    /// known.
    pub fn work_since(&self, former: &Workers) -> Work {
        let seconds = (self.at - former.at).as_secs_f64().max(0.001);
        let (mut requests, mut cpu, mut memory) = (0, 0.0, 0);
        for (pid, worker) in &self.by_pid {
            let before = former.by_pid.get(pid).copied().unwrap_or_default();
            requests += worker.requests.saturating_sub(before.requests);
            cpu += (worker.cpu_seconds - before.cpu_seconds).max(0.0);
            memory += worker.memory;
        }
        Work { finished: (requests as f64 / seconds) as f32, cpu: (cpu / seconds) as f32, memory }
    }

    /// Whether all workers are others than before. Workers that only finish a request do not count.
    pub fn are_all_new(&self, former: &Workers) -> bool {
        let mut current = self.by_pid.iter().filter(|(_, worker)| !worker.is_leaving).map(|(pid, _)| pid).peekable();
        let were_some = former.by_pid.values().any(|worker| !worker.is_leaving);
        were_some && current.peek().is_some() && current.all(|pid| !former.by_pid.contains_key(pid))
    }
}

// === impl Counters ===

impl Counters {
    /// From a status.
    pub fn of(status: &Value, at: Instant) -> Counters {
        let refused =
            applications(status).map(|(name, application)| (name.clone(), number(application, "/requests/refused")));
        Counters { at, requests: number(status, "/requests/total"), refused: refused.collect() }
    }

    /// The sample between a former reading and this status.
    pub fn sample(&self, former: &Counters, status: &Value, time: u64) -> Sample {
        let numbers = applications(status).map(|(name, application)| {
            let of = |path: &str| u32::try_from(number(application, path)).unwrap_or(u32::MAX);
            // A new router counts from 0.
            let (before, now) =
                (former.refused.get(name).copied(), self.refused.get(name).copied().unwrap_or_default());
            let refused = before.filter(|before| *before <= now).map_or(0, |before| now - before);
            let numbers = Numbers {
                processes: of("/processes/running"),
                active: of("/requests/active"),
                waiting: of("/requests/waiting"),
                refused: u32::try_from(refused).unwrap_or(u32::MAX),
                ..Numbers::default()
            };
            (name.clone(), numbers)
        });
        Sample {
            time,
            seconds: (self.at - former.at).as_secs_f32(),
            requests: self.requests.checked_sub(former.requests),
            connections: number(status, "/connections/active") + number(status, "/connections/idle"),
            applications: numbers.collect(),
            routes: Vec::new(),
        }
    }

    /// Whether the router, or all of howdah, was replaced between the former reading and this one.
    pub fn are_of_another_router(&self, former: &Counters) -> bool {
        self.requests < former.requests
    }
}

/// The applications of a status.
pub fn applications(status: &Value) -> impl Iterator<Item = (&String, &Value)> {
    status.get("applications").and_then(Value::as_object).into_iter().flatten()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn work_is_the_difference_of_each_worker() {
        let start = Instant::now();
        let worker = |pid: u64, requests: u64, cpu: f64| json!({ "pid": pid, "requests": requests, "cpu_seconds": cpu, "memory": 10 });
        let at = |seconds: u64, workers: Value| {
            Workers::of(&json!({ "workers": workers }), start + Duration::from_secs(seconds))
        };
        let former = at(0, json!([worker(1, 100, 1.0), worker(2, 50, 2.0), { "pid": null, "requests": null }]));
        let now = at(10, json!([worker(1, 140, 3.0), worker(3, 10, 1.0)]));
        assert_eq!(now.work_since(&former), Work { finished: 5.0, cpu: 0.3, memory: 20 });
        assert!(!now.are_all_new(&former));
        assert!(at(20, json!([worker(4, 0, 0.0)])).are_all_new(&now));
        let draining = json!({ "pid": 3, "state": "leaving" });
        let replaced = at(20, json!([worker(4, 0, 0.0), draining.clone()]));
        assert!(replaced.are_all_new(&now), "the former ones drain");
        assert!(
            !at(30, json!([worker(4, 0, 0.0)])).are_all_new(&replaced) && !at(20, json!([draining])).are_all_new(&now)
        );
        assert!(!at(20, json!([])).are_all_new(&now) && !now.are_all_new(&at(0, json!([]))));
        // A process id that another process has got.
        assert_eq!(at(20, json!([worker(1, 5, 0.0)])).work_since(&now).finished, 0.0);
    }

    #[test]
    fn a_sample_has_the_differences_of_the_counters() {
        let start = Instant::now();
        let status = |total: u64, refused: u64| {
            json!({ "requests": { "total": total }, "connections": { "active": 2, "idle": 3 }, "applications": { "shop": {
                "processes": { "running": 4 }, "requests": { "active": 3, "waiting": 1, "refused": refused } } } })
        };
        let (one, two) = (status(100, 5), status(160, 7));
        let former = Counters::of(&one, start);
        let now = Counters::of(&two, start + Duration::from_secs(5));
        let sample = now.sample(&former, &two, 77);
        assert_eq!((sample.time, sample.seconds, sample.requests, sample.connections), (77, 5.0, Some(60), 5));
        let expected = Numbers { processes: 4, active: 3, waiting: 1, refused: 2, work: None, answers: None };
        assert_eq!(sample.applications["shop"], expected);
        assert!(!now.are_of_another_router(&former));
        let replaced = Counters::of(&status(3, 0), start + Duration::from_secs(10));
        assert!(replaced.are_of_another_router(&now));
        let sample = replaced.sample(&now, &status(3, 0), 82);
        assert_eq!((sample.requests, sample.applications["shop"].refused), (None, 0));
    }
}
