//! `"processes": "auto"`: measures the workers, so that [`crate::policy::sizing`] can decide how many there should be.

use super::gauge::{Gauge, Measured};
use super::idle::IdleWorkers;
use crate::generation::php::workers::worker_set::WorkerSet;
use crate::os::machine::Machine;
use crate::policy::demand::Demand;
use crate::policy::sizing::{Bounds, Decision, QUEUED_INTERVAL, Reason, Sample, Sizing};
use std::time::{Duration, Instant};

/// The state from one decision to the next.
#[derive(Debug)]
pub struct Automatic {
    sizing: Sizing,
    gauge: Gauge,
    /// When the next decision may be made, at the earliest.
    may_decide: Option<Instant>,
    /// The router's last report of requests that wait, with its time.
    waiting: (usize, Instant),
    /// How much memory the new workers of other applications will take, in bytes, with the time of that report.
    promised: (u64, Instant),
    /// How much memory there was for this application's workers at the last decision, in bytes.
    room: i64,
    /// Since when, and until when, there has been no memory for more workers.
    lacks_memory: Option<(Instant, Instant)>,
    /// When the log last had a line about that.
    warned: Option<Instant>,
}

/// After this time, workers that have work have taken the memory for it.
const NEW: Duration = Duration::from_secs(1);
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// A lack of memory that lasts this long is logged. The memory that new workers will take is estimated, and too high.
const LASTING: Duration = Duration::from_secs(3);
/// A report of the router is outdated after this time: the router repeats it while requests wait.
const OUTDATED: Duration = QUEUED_INTERVAL.saturating_mul(3);

// === impl Automatic ===

impl Automatic {
    /// Nothing has been measured yet.
    pub fn new(bounds: Bounds, machine: Machine, now: Instant) -> Automatic {
        Automatic {
            sizing: Sizing::new(bounds),
            gauge: Gauge::new(machine, now),
            may_decide: None,
            waiting: (0, now),
            promised: (0, now),
            room: 0,
            lacks_memory: None,
            warned: None,
        }
    }

    /// Why there are as many workers as there are.
    pub fn reason(&self, workers: &WorkerSet, now: Instant) -> Reason {
        self.sizing.reason(workers.table.staying(), now)
    }

    /// How much memory the new workers will take, in bytes.
    pub fn promised(&self, workers: &WorkerSet, now: Instant) -> u64 {
        let new = workers.table.started_since(now.checked_sub(NEW).unwrap_or(now)).count();
        // The application's control group may have less. Half of the room is for others, whatever one of its workers may have taken
        // for a moment.
        (new as u64 * self.gauge.worker_bytes()).min(u64::try_from(self.room).unwrap_or(0) / 2)
    }

    /// The router reports requests that wait. Returns when to decide.
    pub fn on_workers_wanted(&mut self, waiting: usize, promised: u64, now: Instant) -> Instant {
        self.waiting = (waiting, now);
        self.promised = (promised, now);
        self.may_decide.unwrap_or(now)
    }

    /// Measures the workers, and decides how many there should be.
    pub fn decide(
        &mut self,
        idle: &IdleWorkers,
        starting: usize,
        workers: &WorkerSet,
        application: &str,
        now: Instant,
    ) -> Decision {
        let is_younger = |at: Instant, age: Duration| now.saturating_duration_since(at) < age;
        let waiting = if is_younger(self.waiting.1, OUTDATED) { idle.workers_for(self.waiting.0) } else { 0 };
        let promised = if is_younger(self.promised.1, NEW) { self.promised.0 } else { 0 };
        let sample = self.measure(idle, starting, waiting, promised, workers, now);
        let decision = self.sizing.decide(sample, now);
        self.may_decide = Some(now + decision.pause);
        if let Some(allowed) = decision.lacks_memory {
            self.warn_of_memory(allowed, waiting, application, now);
        }
        let all = sample.demand.all;
        if decision.wanted != all || decision.surplus > 0 {
            let wanted = decision.wanted - decision.surplus;
            let why = self.sizing.reason(all, now);
            tracing::debug!(application, ?sample, wanted, %why, "the number of workers changes");
        }
        decision
    }

    fn measure(
        &mut self,
        idle: &IdleWorkers,
        starting: usize,
        waiting: usize,
        promised: u64,
        workers: &WorkerSet,
        now: Instant,
    ) -> Sample {
        let measured: Vec<_> = measured(workers).collect();
        let busy: Vec<_> = measured.iter().filter(|worker| !idle.contains(worker.worker)).copied().collect();
        let (all, leaving) = (workers.table.staying(), workers.table.leaving());
        let grown_up = measured.iter().filter(|worker| !worker.is_young()).count();
        let memory = self.gauge.memory(&measured, promised, now);
        self.room = memory.map_or(0, |memory| memory.room);
        let usage = self.gauge.usage(&measured, now);
        if usage.is_some() {
            self.sizing.set_cores(self.gauge.cores());
        }
        Sample {
            demand: Demand { idle: idle.len(), starting, all, waiting },
            finished: self.gauge.finished(&measured),
            blocked: self.gauge.blocked(&busy, |worker| workers.current(worker)),
            young: (all + leaving).saturating_sub(grown_up),
            leaving,
            usage,
            memory,
        }
    }

    /// The memory has room for this number of workers only. That is logged if it lasts.
    fn warn_of_memory(&mut self, allowed: usize, waiting: usize, application: &str, now: Instant) {
        let known = self.lacks_memory.filter(|(_, last)| now.saturating_duration_since(*last) < NEW);
        let since = known.map_or(now, |(since, _)| since);
        self.lacks_memory = Some((since, now));
        let is_due = self.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_INTERVAL);
        if is_due && now.saturating_duration_since(since) >= LASTING {
            self.warned = Some(now);
            tracing::warn!(
                "{waiting} requests wait for a worker of {application:?}, and the memory has room for {allowed} workers: \
                 raise processes/auto/memory if that is set; otherwise add memory, or bound what a request takes \
                 (memory_limit)"
            );
        }
    }
}

fn measured(workers: &WorkerSet) -> impl Iterator<Item = Measured> {
    // A boot is no work on requests.
    let booted = workers.table.alive().filter(|(worker, _)| !workers.boots.is_booting(*worker));
    booted.filter_map(|(worker, process)| {
        Some(Measured { worker, process: process?, account: workers.control.account(worker).unwrap_or_default() })
    })
}
