//! The loads of a lab, as they were run.

use serde::{Deserialize, Serialize};

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadDescription {
    /// Its name in the lab: unique, `[a-z0-9-]`.
    pub name: String,
    /// Its name for people: `100 connections, 10 s`.
    pub label: String,
    /// When requests are sent.
    #[serde(flatten)]
    pub kind: LoadKind,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// The time-out of a request.
    pub timeout_seconds: f64,
    /// The time before the measurement during which responses are not counted.
    pub warm_up_seconds: f64,
    /// The requests that are mixed, with their weights.
    pub targets: Vec<RequestDescription>,
    /// The conditions that stop a run before its end, in the notation of lab.json: `errors(10%, 5s)`.
    pub autostop: Vec<String>,
    /// The objective that a stack must hold to be recommended; `None`: 99 % right answers.
    pub objective: Option<super::limit::Objective>,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoadKind {
    /// At the times of a schedule, whatever the server does (open loop). A time counts from the intended send time.
    Open {
        /// `line(1, 1000, 60s) const(1000, 540s)`
        schedule: String,
        /// The number of requests of the schedule.
        planned: u64,
        /// The duration of the schedule.
        duration_seconds: f64,
        /// The highest rate of the schedule, in requests per second.
        peak_rate: f64,
        /// The limit of connections.
        connections: u32,
    },
    /// By a number of clients: each sends its next request after the response to its last one (closed loop).
    Closed {
        /// The number of clients.
        connections: u32,
        /// The duration; `None` if the number of requests ends it.
        duration_seconds: Option<f64>,
        /// The number of requests; `None` if the duration ends it.
        requests: Option<u64>,
    },
}

/// One of a load's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestDescription {
    /// `GET`
    pub method: String,
    /// Path and query: `/index.php?a=1`.
    pub path: String,
    /// Its share, relative to the sum of all weights.
    pub weight: u32,
    /// The checks of each response, in words: `status 200`, `body contains "hello"`.
    pub checks: Vec<String>,
}
