//! An application's number of workers follows what it has to do: the policy of [`crate::policy::pool`], carried out.

use super::Generation;
use crate::policy::demand::Demand;
use crate::policy::pool::{Pool, PoolPolicy};
use howdah_channel::WorkerId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Since when which worker has been idle, as far as it has been looked at.
#[derive(Debug, Default)]
pub(super) struct Idle {
    pub(super) since: BTreeMap<u16, (WorkerId, Instant)>,
    /// When to look again.
    pub(super) look_at: Option<Instant>,
}

/// How long a worker takes from its order to its first wait for a request, and a little more.
const BIRTH: Duration = Duration::from_millis(200);
/// A former generation keeps so many idle workers: a request whose body is still on its way may come to it.
const KEPT_BY_FORMER: usize = 1;

// === impl Generation ===

impl Generation {
    /// The router found fewer idle workers than there should be, and so many requests that wait. So much memory, in bytes, is
    /// promised to other applications.
    pub fn on_wanting(&mut self, waiting: u64, promised: u64, now: Instant) {
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        match self.plan.pool {
            _ if self.is_former => self.add_one_for(waiting, now),
            PoolPolicy::Automatic(_) => self.size_soon(waiting, promised, now),
            PoolPolicy::Configured(pool) => self.adapt(pool, waiting, now),
        }
        self.on_time(now);
    }

    /// Sends workers away that have been idle for too long, and starts those that are missing.
    pub(super) fn look_at_idle(&mut self, now: Instant) {
        if self.idle.look_at.is_some_and(|at| at <= now) {
            self.idle.look_at = None;
            match self.plan.pool {
                _ if self.is_former => {}
                PoolPolicy::Automatic(_) => self.size(now),
                PoolPolicy::Configured(pool) => self.adapt(pool, 0, now),
            }
        }
    }

    fn adapt(&mut self, pool: Pool, waiting: usize, now: Instant) {
        if pool.idle_timeout.is_none() {
            return;
        }
        let starting = self.look_who_is_idle(now);
        let idle: Vec<_> = self.idle.since.iter().map(|(place, (_, since))| (*place, *since)).collect();
        for place in pool.surplus(&idle, now) {
            if let Some((worker, _)) = self.idle.since.remove(&place) {
                self.retire(worker);
            }
        }
        let seen = Demand { idle: self.idle.since.len(), starting, all: self.workers.staying(), waiting };
        self.workers.set_target(pool.wanted(seen).max(self.least()));
        self.idle.look_at = pool.next_check(self.workers.target(), now);
    }

    /// Even without spare ones, one shows that the application works.
    pub(super) fn least(&self) -> usize {
        if self.proven { 0 } else { self.plan.pool.at_start() }
    }

    /// Notes since when who is idle, and counts those that are being started.
    pub(super) fn look_who_is_idle(&mut self, now: Instant) -> usize {
        let mut idle = BTreeMap::new();
        for worker in self.workers.running().filter(|worker| self.control.reports_idle(worker.index)) {
            let known = self.idle.since.get(&worker.index).filter(|(known, _)| *known == worker);
            idle.insert(worker.index, *known.unwrap_or(&(worker, now)));
        }
        self.idle.since = idle;
        // Between its birth and its first wait for a request, or its first request, a worker looks busy.
        let is_new = |worker: &WorkerId| {
            !self.idle.since.contains_key(&worker.index)
                && !self
                    .control
                    .account(*worker)
                    .is_some_and(|account| account.current.is_some() || account.requests > 0)
        };
        self.workers.started_since(now.checked_sub(BIRTH).unwrap_or(now)).filter(is_new).count()
    }

    /// Its requests are running out: most of the idle workers go, and give their memory back.
    pub fn let_idle_workers_go(&mut self, now: Instant) {
        self.is_former = true;
        self.look_who_is_idle(now);
        let leaving: Vec<_> = self.idle.since.values().map(|(worker, _)| *worker).skip(KEPT_BY_FORMER).collect();
        for worker in leaving {
            self.idle.since.remove(&worker.index);
            self.retire(worker);
        }
    }

    /// The last requests of a former generation are few: there is no policy for them.
    fn add_one_for(&mut self, waiting: usize, now: Instant) {
        if waiting > 0 && self.look_who_is_idle(now) == 0 && self.idle.since.is_empty() {
            self.workers.set_target(self.workers.staying() + 1);
        }
    }

    /// Asks this worker to go when it has finished what it does.
    pub(super) fn retire(&mut self, worker: WorkerId) {
        self.workers.retire(worker);
        self.control.stop_worker(worker);
    }
}
