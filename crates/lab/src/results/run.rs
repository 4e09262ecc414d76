//! One measurement: a stack under a load in one round.

use super::distribution::{Distribution, Percentiles};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measurement.
///
/// A request is *right* if its response is complete and passes all checks, *failed* otherwise. Time-outs are failed
/// requests, too. Requests of the warm-up are not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the stack.
    pub stack: String,
    /// The name of the load.
    pub load: String,
    /// The round, from 1.
    pub round: u32,
    /// Its place in the order of all runs, from 1.
    pub position: u32,
    /// Whether it counts.
    #[serde(flatten)]
    pub state: RunState,
    /// The start, in seconds after the start of the lab.
    pub started_after_seconds: f64,
    /// From the first intended send time to the last outcome.
    pub duration_seconds: f64,
    /// The requests that were sent, or should have been.
    pub requests: u64,
    /// Right requests.
    pub right: u64,
    /// Failed requests.
    pub failed: u64,
    /// Right requests per second.
    pub requests_per_second: f64,
    /// Bytes of all responses, heads included.
    pub received_bytes: u64,
    /// Complete responses by status, wrong ones included: `{"200": 5000, "502": 3}`.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests by kind. The sum is [`Run::failed`]. The kinds: `wrong_status`, `wrong_body`, `wrong_header`,
    /// `timeout` (the client gave up: nginx logs it as 499), `connect_refused`, `connect_backlog_full`,
    /// `connect_timeout`, `connect_failed`, `reset`, `closed_early`, `malformed`.
    pub errors: BTreeMap<String, u64>,
    /// Times of the right requests.
    pub latency: Distribution,
    /// Times of the failed requests, until their failure.
    pub failure_latency: Distribution,
    /// The stack's processes during the run; `None` if none could be read.
    pub usage: Option<Usage>,
    /// The load generator during the run.
    pub generator: Generator,
    /// Second by second, from 0; a request is in the second of its intended send time.
    pub seconds: Vec<Second>,
}

/// Whether a run counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunState {
    /// It came to its end and counts.
    Complete,
    /// A condition of the load's `autostop` stopped it. It counts: what it measured is the stack's.
    Stopped {
        /// The condition and what it saw.
        reason: String,
    },
    /// The load generator was the bottleneck. It does not count.
    Voided {
        /// The generator's lack: CPU, or time for its sends.
        reason: String,
    },
    /// The stack died, did not become ready or answered wrongly before the load. It counts as a failure of the stack.
    Failed {
        /// The event, in a sentence.
        reason: String,
        /// The last lines of the stack's logs.
        log: Vec<String>,
    },
    /// Ctrl-C. It does not count.
    Interrupted,
}

/// The stack's process tree during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time of all processes, in seconds.
    pub cpu_seconds: f64,
    /// Right requests per second of this CPU time; `None` below the clock's precision.
    pub requests_per_cpu_second: Option<f64>,
    /// CPU by second, in percent of one core.
    pub cpu_percent: UsageSpan,
    /// Proportional set size of all processes by second, in bytes.
    pub pss_bytes: UsageSpan,
    /// Threads of all processes by second.
    pub threads: UsageSpan,
    /// Processes by second.
    pub processes: UsageSpan,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Context switches of both kinds per right request; `None` without a request.
    pub switches_per_request: Option<f64>,
    /// The processes by their job, `front` and `php`; empty if the stack's manifest does not distinguish them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleUsage>,
}

/// The processes of a stack with one job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleUsage {
    /// CPU time per right request, by the scheduler's clock; `None` without a request.
    pub cpu_microseconds_per_request: Option<f64>,
    /// Context switches per right request.
    pub switches_per_request: Option<f64>,
    /// Processes by second.
    pub processes: UsageSpan,
    /// Proportional set size by second, in bytes.
    pub pss_bytes: UsageSpan,
    /// System calls per right request, in a run of its own with perf; `None` if they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_calls_per_request: Option<f64>,
    /// Instructions per right request, in that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_request: Option<f64>,
}

/// The median and the maximum of the values by second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageSpan {
    /// The median.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

/// The load generator during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Its CPU by second, in percent of one core, all threads.
    pub cpu_percent: UsageSpan,
    /// The number of its threads.
    pub threads: u32,
    /// Open loop: requests that were sent more than 1 ms late although a connection was free.
    pub late_sends: u64,
    /// Their share of all requests.
    pub late_share: f64,
    /// The latest send, in milliseconds.
    pub latest_send_ms: f64,
    /// The highest number of connections at a time.
    pub connections: u32,
    /// Connections that were opened.
    pub connects: u64,
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the start of the run.
    pub second: u32,
    /// Requests that were due (open loop) or sent (closed loop).
    pub sent: u64,
    /// Right requests among them.
    pub right: u64,
    /// Failed requests among them.
    pub failed: u64,
    /// Outcomes in this second, of whatever request.
    pub finished: u64,
    /// Times of the right requests of this second; `None` without one.
    pub latency: Option<Percentiles>,
    /// CPU of the stack, in percent of one core; `None` if it was not read in this second.
    pub cpu_percent: Option<f64>,
    /// Proportional set size of the stack.
    pub pss_bytes: Option<u64>,
    /// Threads of the stack.
    pub threads: Option<u32>,
    /// Voluntary context switches of the stack in this second.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches of the stack in this second.
    pub involuntary_switches: Option<u64>,
    /// CPU of the load generator, in percent of one core.
    pub generator_cpu_percent: Option<f64>,
}
