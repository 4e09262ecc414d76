//! How many workers are useful, by two laws of queues (Denning and Buzen, "The Operational Analysis of Queueing Network
//! Models", 1978).
//!
//! By the utilisation law, requests that use `cpu` seconds of a processor are finished at a rate of at most `cores /
//! cpu`. By Little's law, to finish that many when each takes `wall` seconds, `cores × wall / cpu` of them must be
//! under way. The time in which a worker waits for a processor does not count as `wall`: more workers would only make
//! it longer.
//!
//! `cores` are the processors that the workers can have: the time that they used, and the time in which the processors
//! were idle. The rest is used by the router, the clients and other programs, with any number of workers. Once no
//! processor is idle, the useful number is the number of workers that run or wait for others, as Little's law counts
//! them: it does not depend on the number of workers, so the number of workers settles.

use super::sample::Usage;
use std::time::Duration;

/// The recent use of time by requests: sums in which the past decays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Law {
    sums: Usage,
    /// The same since requests wait for far less than the sums show.
    fallen: Usage,
}

/// After this time, in seconds, a past request counts for about a third.
const DECAY_SECONDS: f64 = 1.5;
/// Less use of processors than this, in seconds, is too little to conclude anything about requests.
const MIN_KNOWN_CPU: f64 = 0.005;
/// Requests that need this many times fewer workers are other ones.
const FALL: f64 = 4.0;
/// After this time of other requests, in seconds, the past ones do not count. Hundreds of workers that waited would
/// outweigh a few that compute for ten seconds.
const FALL_SECONDS: f64 = 0.25;
/// The reserve of workers, in standard deviations.
const RESERVE: f64 = 3.0;
/// With a smaller share of idle time, more work for the processors only delays the other work.
const BUSY_MACHINE: f64 = 0.02;
/// While workers wait for a processor for more than this share of their time, other workers take it from them.
const CONTENDED: f64 = 0.1;

// === impl Law ===

impl Law {
    /// Adds the usage of some time.
    pub fn record(&mut self, usage: Usage) {
        self.sums = self.sums.followed_by(usage);
        self.fallen = self.fallen.followed_by(usage);
        let before = self.for_each_core().unwrap_or_default();
        if workers_for_each_core(self.fallen).is_none_or(|now| now * FALL > before) {
            self.fallen = Usage::default();
        }
        if self.fallen.within >= FALL_SECONDS {
            *self = Law { sums: self.fallen, ..Law::default() };
        }
    }

    /// How many workers keep one processor busy; `None` if too few requests were measured.
    pub fn for_each_core(&self) -> Option<f64> {
        workers_for_each_core(self.sums)
    }

    /// How many workers keep the processors busy that they can have of this number, but at least one worker for each
    /// processor. With a reserve, because the number of workers that wait for others varies: some times its standard
    /// deviation, if they wait independently of each other (the square-root rule of A. K. Erlang, 1924).
    pub fn staffed(&self, cores: f64) -> Option<f64> {
        let (for_each_core, available) = (self.for_each_core()?, self.available(cores));
        let waiting = available * (for_each_core - 1.0);
        Some((available + waiting).max(cores) + RESERVE * waiting.sqrt())
    }

    /// How much of a request is waiting for others than the processors, from 0 to 1.
    pub fn waiting_share(&self) -> Option<f64> {
        self.for_each_core().map(|workers| 1.0 - 1.0 / workers)
    }

    /// How many of this number of processors the workers can have: other programs leave them.
    fn available(&self, cores: f64) -> f64 {
        let Usage { within, cpu, .. } = self.sums;
        (cpu / within.max(f64::MIN_POSITIVE) + self.idle_share() * cores).min(cores)
    }

    /// How long a request waits for others than the processors; zero if too few requests were measured.
    pub fn wait_of_request(&self) -> Duration {
        let Usage { wall, cpu, delayed, requests, .. } = self.sums;
        let wait = (wall - delayed - cpu) / requests.max(1.0);
        Duration::try_from_secs_f64(wait.max(0.0)).unwrap_or_default()
    }

    /// Whether the processors of the machine had no idle time, whatever used them.
    pub fn is_machine_busy(&self) -> bool {
        self.idle_share() < BUSY_MACHINE
    }

    /// How much of the time of the machine's processors was idle, from 0 to 1.
    pub fn idle_share(&self) -> f64 {
        match self.sums.within > 0.0 {
            true => (self.sums.idle / self.sums.within).min(1.0),
            false => 1.0,
        }
    }

    /// How far the processors are occupied: until 1, another worker gets a processor. With 1, none is idle, and workers
    /// wait for one.
    ///
    /// Idle time alone does not show it. Beside a program that always computes no processor is idle, but the kernel gives
    /// workers that wait for others most of the time a processor when they need one.
    pub fn occupied(&self) -> f64 {
        (1.0 - self.idle_share()).min(self.delayed_share() / CONTENDED)
    }

    /// How much of the time of busy workers is waiting for a processor, from 0 to 1.
    pub fn delayed_share(&self) -> f64 {
        self.sums.delayed / self.sums.wall.max(f64::MIN_POSITIVE)
    }
}

fn workers_for_each_core(Usage { wall, cpu, delayed, .. }: Usage) -> Option<f64> {
    (cpu >= MIN_KNOWN_CPU).then(|| ((wall - delayed) / cpu).max(1.0))
}

// === impl Usage ===

impl Usage {
    /// The sums with another time. The past decays.
    fn followed_by(self, usage: Usage) -> Usage {
        let past = (-usage.within / DECAY_SECONDS).exp();
        Usage {
            within: self.within * past + usage.within,
            requests: self.requests * past + usage.requests,
            wall: self.wall * past + usage.wall,
            cpu: self.cpu * past + usage.cpu,
            delayed: self.delayed * past + usage.delayed,
            idle: self.idle * past + usage.idle,
        }
    }
}
