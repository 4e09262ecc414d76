//! Which workers are idle, and since when, as far as that was looked at.
//!
//! A worker that runs several requests at a time is idle while it has a free place. It is retired only without requests.
//! A worker that has finished a request between two looks was in use: it is idle since the later look.

use crate::generation::php::workers::worker_set::WorkerSet;
use howdah_channel::{Account, WorkerId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The idle workers, by their index.
#[derive(Debug, Default)]
pub struct IdleWorkers {
    idle: BTreeMap<u16, IdleWorker>,
    turns: Turns,
    /// How many requests a worker runs at a time, and how many the idle ones could still take.
    places: usize,
    free_places: usize,
}

/// The turns of workers that run several requests, which are out of the idle set from a wake-up until their event loop asks
/// for a request. By the worker's index: its last turn, and since when that has been known.
#[derive(Debug, Default)]
struct Turns(BTreeMap<u16, (WorkerId, Duration, Instant)>);

#[derive(Clone, Copy, Debug)]
struct IdleWorker {
    worker: WorkerId,
    /// How many requests it has finished so far.
    requests: u64,
    since: Instant,
    /// It runs no request.
    is_unused: bool,
}

/// A little more time than a worker takes from its order to its first wait for a request.
const START_TIME: Duration = Duration::from_millis(200);
/// An event loop that was woken and does not ask for a request for this time is busy, or blocked.
const LONGEST_TURN: Duration = Duration::from_millis(50);

// === impl IdleWorkers ===

impl IdleWorkers {
    /// Looks which workers are idle. Returns how many others are being started: between its fork and its first wait for
    /// a request, a worker looks busy. In worker mode that takes as long as the script boots.
    pub fn look(&mut self, workers: &WorkerSet, now: Instant) -> usize {
        let mut idle = BTreeMap::new();
        let mut free_places = 0;
        let places = u64::from(workers.control.geometry().claims);
        for worker in workers.table.running() {
            let account = workers.control.account(worker).unwrap_or_default();
            let has_place = |turns: &mut Turns| places > 1 && turns.has_place(worker, places, account, now);
            if !workers.control.reports_idle(worker.index) && !has_place(&mut self.turns) {
                continue;
            }
            free_places += places.saturating_sub(account.running);
            let (requests, is_unused) = (account.requests, account.current.is_none());
            let known = self.idle.get(&worker.index);
            let known = known
                .filter(|known| known.worker == worker && known.requests == requests && known.is_unused == is_unused);
            idle.insert(worker.index, *known.unwrap_or(&IdleWorker { worker, requests, since: now, is_unused }));
        }
        self.idle = idle;
        (self.places, self.free_places) = (places as usize, free_places as usize);
        let is_new = |worker: &WorkerId| {
            let account = workers.control.account(*worker);
            !self.contains(*worker) && !account.is_some_and(|account| account.current.is_some() || account.requests > 0)
        };
        let is_forked = |worker: &WorkerId| !workers.boots.is_booting(*worker);
        let started = workers.table.started_since(now.checked_sub(START_TIME).unwrap_or(now));
        started.filter(is_forked).filter(is_new).count() + workers.boots.len()
    }

    /// The number of workers for requests that wait: one for each, or fewer if workers run several at a time. The idle ones are
    /// about to take as many as they have places.
    pub fn workers_for(&self, waiting: usize) -> usize {
        match self.places {
            0 | 1 => waiting,
            places => waiting.saturating_sub(self.free_places).div_ceil(places),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Whether this worker is idle.
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.idle.contains_key(&worker.index)
    }

    /// The indices of those that run no request, each with the time since which its worker is idle.
    pub fn indices(&self) -> Vec<(u16, Instant)> {
        let unused = self.idle.iter().filter(|(_, idle)| idle.is_unused);
        unused.map(|(index, idle)| (*index, idle.since)).collect()
    }

    /// The workers that have been idle and without requests since this time, longest idle first.
    pub fn longest_first(&self, since: Instant) -> Vec<WorkerId> {
        let mut idle: Vec<_> =
            self.idle.values().filter(|idle| idle.is_unused && idle.since <= since).copied().collect();
        idle.sort_by_key(|idle| idle.since);
        idle.into_iter().map(|idle| idle.worker).collect()
    }

    /// The worker with this index is not idle any more.
    pub fn remove(&mut self, index: u16) -> Option<WorkerId> {
        self.idle.remove(&index).map(|idle| idle.worker)
    }
}

// === impl Turns ===

impl Turns {
    /// Whether the worker has a free place and takes turns.
    fn has_place(&mut self, worker: WorkerId, places: u64, account: Account, now: Instant) -> bool {
        let (_, turn, since) = *self
            .0
            .entry(worker.index)
            .and_modify(|known| {
                if (known.0, known.1) != (worker, account.turn) {
                    *known = (worker, account.turn, now);
                }
            })
            .or_insert((worker, account.turn, now));
        !turn.is_zero() && account.running < places && now.saturating_duration_since(since) < LONGEST_TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_takes_no_turn_for_a_while_has_no_place() {
        let mut turns = Turns::default();
        let (start, worker) = (Instant::now(), WorkerId { index: 3, incarnation: 1 });
        let at = |turn, running| Account { turn: Duration::from_millis(turn), running, ..Account::default() };
        let next = WorkerId { incarnation: 2, ..worker };
        for (millis, worker, account, expected) in [
            (0, worker, at(0, 0), false),
            (1, worker, at(1, 0), true),
            (40, worker, at(1, 7), true),
            (40, worker, at(1, 8), false),
            (51, worker, at(1, 7), false),
            (52, worker, at(2, 7), true),
            (200, worker, at(2, 7), false),
            (201, next, at(2, 7), true),
        ] {
            let now = start + Duration::from_millis(millis);
            assert_eq!(turns.has_place(worker, 8, account, now), expected, "{account:?} after {millis} ms");
        }
    }
}
