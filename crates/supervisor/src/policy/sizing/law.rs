//! How many workers are useful, by two laws of queues (Denning and Buzen, "The Operational Analysis of Queueing Network
//! Models", 1978).
//!
//! By the utilisation law, requests that use `cpu` seconds of a processor are finished at a rate of at most `cores /
//! cpu`. By Little's law, to finish that many when each takes `wall` seconds, `cores × wall / cpu` of them must be
//! under way. The time in which a worker waits for a processor does not count as `wall`: more workers would only make
//! it longer.

use super::sample::Usage;
use std::time::Duration;

/// The recent use of time by requests: sums in which the past decays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Law {
    sums: Usage,
}

/// After this time, in seconds, a past request counts for about a third.
const DECAY_SECONDS: f64 = 1.5;
/// Less use of processors than this, in seconds, is too little to conclude anything about requests.
const MIN_KNOWN_CPU: f64 = 0.005;
/// The reserve of workers, in standard deviations.
const DEVIATIONS: f64 = 3.0;
/// With a smaller share of idle time, more work for the processors only delays the other work.
const BUSY_MACHINE: f64 = 0.05;

// === impl Law ===

impl Law {
    /// Adds the usage of some time.
    pub fn record(&mut self, usage: Usage) {
        let past = (-usage.within / DECAY_SECONDS).exp();
        self.sums = Usage {
            within: self.sums.within * past + usage.within,
            requests: self.sums.requests * past + usage.requests,
            wall: self.sums.wall * past + usage.wall,
            cpu: self.sums.cpu * past + usage.cpu,
            delayed: self.sums.delayed * past + usage.delayed,
            idle: self.sums.idle * past + usage.idle,
        };
    }

    /// How many workers keep this number of processors busy; `None` if too few requests were measured.
    pub fn useful(&self, cores: f64) -> Option<f64> {
        let Usage { wall, cpu, delayed, .. } = self.sums;
        (cpu >= MIN_KNOWN_CPU).then(|| cores * ((wall - delayed) / cpu).max(1.0))
    }

    /// The same with a reserve, because the number of workers that wait for others varies: some times its standard
    /// deviation, if they wait independently of each other (the square-root rule of A. K. Erlang, 1924).
    pub fn staffed(&self, cores: f64) -> Option<f64> {
        self.useful(cores).map(|useful| useful + DEVIATIONS * (useful - cores).sqrt())
    }

    /// How much of a request is waiting for others than the processors, from 0 to 1.
    pub fn waiting_share(&self) -> Option<f64> {
        self.useful(1.0).map(|useful| 1.0 - 1.0 / useful)
    }

    /// How long a request waits for others than the processors; zero if too few requests were measured.
    pub fn wait_of_request(&self) -> Duration {
        let Usage { wall, cpu, delayed, requests, .. } = self.sums;
        let wait = (wall - delayed - cpu) / requests.max(1.0);
        Duration::try_from_secs_f64(wait.max(0.0)).unwrap_or_default()
    }

    /// How many workers were busy, on average, without a wait for a processor.
    pub fn undelayed(&self) -> f64 {
        (self.sums.wall - self.sums.delayed) / self.sums.within.max(f64::MIN_POSITIVE)
    }

    /// Whether the processors of the machine had no idle time, whatever used them.
    pub fn is_machine_busy(&self) -> bool {
        self.sums.idle < BUSY_MACHINE * self.sums.within
    }

    /// How much of the time of busy workers is waiting for a processor, from 0 to 1.
    pub fn delayed_share(&self) -> f64 {
        self.sums.delayed / self.sums.wall.max(f64::MIN_POSITIVE)
    }
}
