//! The highest rates that stacks hold under an objective.

use serde::{Deserialize, Serialize};

/// The service objective of a load: both must hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The percentile, 0 to 100: 99.
    pub percentile: f64,
    /// Its upper limit.
    pub milliseconds: f64,
    /// The upper limit of the share of failed requests: 0.001.
    pub error_share: f64,
}

/// The highest constant rate that a stack held.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The name of the stack.
    pub stack: String,
    /// The name of the load whose requests were sent.
    pub load: String,
    /// The objective.
    pub objective: Objective,
    /// The highest rate that was held, in requests per second; `None` if none was.
    pub held: Option<f64>,
    /// The lowest rate that was missed; `None` if the highest rate of the search was held.
    pub missed: Option<f64>,
    /// All rates that were tried, in their order.
    pub probes: Vec<Probe>,
}

/// One rate that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests per second.
    pub rate: f64,
    /// The objective's percentile in milliseconds; `None` without a right answer.
    pub latency_ms: Option<f64>,
    /// The share of failed requests.
    pub error_share: f64,
    /// CPU of the stack in percent of one core; median of the seconds.
    pub cpu_percent: Option<f64>,
    /// Whether the objective was met.
    pub held: bool,
    /// Whether the load generator was the bottleneck; such a probe ends the search.
    pub voided: bool,
}
