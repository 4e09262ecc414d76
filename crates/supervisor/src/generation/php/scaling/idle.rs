//! Which workers are idle, and since when, as far as that was looked at.
//!
//! A worker that has finished a request between two looks was in use: it is idle since the later look.

use crate::generation::php::worker_set::WorkerSet;
use howdah_channel::WorkerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The idle workers, by their index.
#[derive(Debug, Default)]
pub struct IdleWorkers {
    idle: BTreeMap<u16, IdleWorker>,
}

#[derive(Clone, Copy, Debug)]
struct IdleWorker {
    worker: WorkerId,
    /// How many requests it has finished so far.
    requests: u64,
    since: Instant,
}

/// A little more time than a worker takes from its order to its first wait for a request.
const START_TIME: Duration = Duration::from_millis(200);

// === impl IdleWorkers ===

impl IdleWorkers {
    /// Looks which workers are idle. Returns how many others are being started: between its fork and its first wait for
    /// a request, a worker looks busy. In worker mode that takes as long as the script boots.
    pub fn look(&mut self, workers: &WorkerSet, now: Instant) -> usize {
        let mut idle = BTreeMap::new();
        for worker in workers.table.running().filter(|worker| workers.control.reports_idle(worker.index)) {
            let requests = workers.control.account(worker).map_or(0, |account| account.requests);
            let known = self.idle.get(&worker.index);
            let known = known.filter(|known| known.worker == worker && known.requests == requests);
            idle.insert(worker.index, *known.unwrap_or(&IdleWorker { worker, requests, since: now }));
        }
        self.idle = idle;
        let is_new = |worker: &WorkerId| {
            let account = workers.control.account(*worker);
            !self.contains(*worker) && !account.is_some_and(|account| account.current.is_some() || account.requests > 0)
        };
        let is_forked = |worker: &WorkerId| !workers.boots.is_booting(*worker);
        let started = workers.table.started_since(now.checked_sub(START_TIME).unwrap_or(now));
        started.filter(is_forked).filter(is_new).count() + workers.boots.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Whether this worker is idle.
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.idle.contains_key(&worker.index)
    }

    /// Their indices, each with the time since which its worker is idle.
    pub fn indices(&self) -> Vec<(u16, Instant)> {
        self.idle.iter().map(|(index, idle)| (*index, idle.since)).collect()
    }

    /// The workers that have been idle since this time, longest idle first.
    pub fn longest_first(&self, since: Instant) -> Vec<WorkerId> {
        let mut idle: Vec<_> = self.idle.values().filter(|idle| idle.since <= since).copied().collect();
        idle.sort_by_key(|idle| idle.since);
        idle.into_iter().map(|idle| idle.worker).collect()
    }

    /// The worker with this index is not idle any more.
    pub fn remove(&mut self, index: u16) -> Option<WorkerId> {
        self.idle.remove(&index).map(|idle| idle.worker)
    }
}
