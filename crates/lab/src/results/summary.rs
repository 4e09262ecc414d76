//! All rounds of a stack under a load, comparisons of stacks, and the inputs of the verdict.

use super::distribution::Distribution;
use super::run::UsageSpan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All rounds of a stack under a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The name of the stack.
    pub stack: String,
    /// The name of the load.
    pub load: String,
    /// The runs that count: complete and stopped ones.
    pub runs: u32,
    /// Voided and interrupted runs, which do not count.
    pub discarded_runs: u32,
    /// Runs that failed before the load.
    pub failed_runs: u32,
    /// Requests of the runs that count.
    pub requests: u64,
    /// Right requests (the seeds' "HTTP OK count").
    pub right: u64,
    /// The share of right requests, 0 to 1 (the seeds' "HTTP OK %").
    pub right_share: f64,
    /// Failed requests by kind.
    pub errors: BTreeMap<String, u64>,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Times of the right requests of all rounds together.
    pub latency: Distribution,
    /// Means of the rounds with their confidence intervals.
    pub estimates: BTreeMap<Metric, Estimate>,
    /// CPU by second in percent of one core: the median of all seconds, and the maximum.
    pub cpu_percent: Option<UsageSpan>,
    /// PSS by second in bytes.
    pub pss_bytes: Option<UsageSpan>,
    /// Threads by second.
    pub threads: Option<UsageSpan>,
    /// Voluntary and involuntary context switches per right request.
    pub switches_per_request: Option<f64>,
}

/// A figure that stacks are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Right requests per second; more is better.
    RequestsPerSecond,
    /// Right requests per second of CPU time of the stack; more is better.
    RequestsPerCpuSecond,
    /// The share of right requests; more is better.
    RightShare,
    /// Milliseconds; less is better.
    LatencyMean,
    /// Milliseconds; less is better.
    LatencyP50,
    /// Milliseconds; less is better.
    LatencyP80,
    /// Milliseconds; less is better.
    LatencyP90,
    /// Milliseconds; less is better.
    LatencyP95,
    /// Milliseconds; less is better.
    LatencyP99,
    /// Milliseconds; less is better.
    LatencyP999,
    /// Percent of one core, the median of a run's seconds; less is better.
    CpuPercent,
    /// Bytes, the median of a run's seconds; less is better.
    PssBytes,
}

/// A mean over the rounds, with its confidence interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean of the rounds (geometric, except for shares).
    pub value: f64,
    /// The interval of the method's confidence level; `None` with a single round.
    pub interval: Option<(f64, f64)>,
    /// The values of the rounds, in their order.
    pub rounds: Vec<f64>,
}

/// Two stacks under one load, by one metric. The rounds are compared in pairs, so that a slow minute of the machine
/// concerns both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the load.
    pub load: String,
    /// The metric.
    pub metric: Metric,
    /// The name of a stack.
    pub stack: String,
    /// The name of the stack that it is compared with.
    pub baseline: String,
    /// The stack's value divided by the baseline's: 1.2 is 20 % more. For shares, the difference: 0.01 is one
    /// percentage point.
    pub ratio: f64,
    /// The interval of the ratio (for shares, of the difference); `None` with a single round.
    pub interval: Option<(f64, f64)>,
    /// Whether it is a difference: the interval excludes "equal", and the difference is large enough to matter. All
    /// else is to be called noise, or "no difference found".
    pub significant: bool,
    /// The name of the better stack if the difference is significant.
    pub better: Option<String>,
    /// The number of rounds that both have.
    pub rounds: u32,
}

/// The inputs of the verdict in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// One for each load, in the order of the loads.
    pub loads: Vec<LoadVerdict>,
    /// The stacks that lead under the most loads; more than one if no difference between them was found.
    pub recommended: Vec<String>,
    /// Sentences that limit the verdict: too few rounds, `--quick`, a shared machine, failed checks.
    pub caveats: Vec<String>,
}

/// The verdict of one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadVerdict {
    /// The name of the load.
    pub load: String,
    /// The metric that decides: requests per second for closed loads, p99 for open ones.
    pub metric: Metric,
    /// The stacks that meet the load's objective (by default 99 % right answers), best first.
    pub eligible: Vec<String>,
    /// The stacks that do not, with the reason.
    pub ineligible: BTreeMap<String, String>,
    /// The eligible stacks that are not significantly worse than the best: the winner, or several that share it.
    pub leaders: Vec<String>,
}
