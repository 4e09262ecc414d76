//! Which workers are idle, and since when, as far as that was looked at.

use super::worker_set::WorkerSet;
use howdah_channel::WorkerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The idle workers, by their index.
#[derive(Debug, Default)]
pub struct IdleWorkers {
    since: BTreeMap<u16, (WorkerId, Instant)>,
}

/// A little more time than a worker takes from its order to its first wait for a request.
const START_TIME: Duration = Duration::from_millis(200);

// === impl IdleWorkers ===

impl IdleWorkers {
    /// Looks which workers are idle. Returns how many others are being started: between its fork and its first wait for
    /// a request, a worker looks busy.
    pub fn look(&mut self, workers: &WorkerSet, now: Instant) -> usize {
        let mut idle = BTreeMap::new();
        for worker in workers.table.running().filter(|worker| workers.control.reports_idle(worker.index)) {
            let known = self.since.get(&worker.index).filter(|(known, _)| *known == worker);
            idle.insert(worker.index, *known.unwrap_or(&(worker, now)));
        }
        self.since = idle;
        let is_new = |worker: &WorkerId| {
            let account = workers.control.account(*worker);
            !self.contains(*worker) && !account.is_some_and(|account| account.current.is_some() || account.requests > 0)
        };
        workers.table.started_since(now.checked_sub(START_TIME).unwrap_or(now)).filter(is_new).count()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.since.len()
    }

    /// Whether this worker is idle.
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.since.contains_key(&worker.index)
    }

    /// Their indices, each with the time since which its worker is idle.
    pub fn indices(&self) -> Vec<(u16, Instant)> {
        self.since.iter().map(|(index, (_, since))| (*index, *since)).collect()
    }

    /// The workers, longest idle first.
    pub fn longest_first(&self) -> Vec<WorkerId> {
        let mut idle: Vec<_> = self.since.values().copied().collect();
        idle.sort_by_key(|(_, since)| *since);
        idle.into_iter().map(|(worker, _)| worker).collect()
    }

    /// The worker with this index is not idle any more.
    pub fn remove(&mut self, index: u16) -> Option<WorkerId> {
        self.since.remove(&index).map(|(worker, _)| worker)
    }
}
