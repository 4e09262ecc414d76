//! The number of workers follows what the application has to do: the policies of [`crate::policy::pool`] and
//! [`crate::policy::sizing`], carried out. `idle`: which workers are idle; `automatic`, `gauge` and `weighing`: what they use, with
//! `"processes": "auto"`.

mod automatic;
pub mod gauge;
mod idle;
mod weighing;

use crate::generation::php::workers::worker_set::WorkerSet;
use crate::generation::tally::SizingStep;
use crate::plan::php::application::PhpPlan;
use crate::policy::demand::Demand;
use crate::policy::pool::{Pool, PoolPolicy};
use crate::policy::sizing::Reason;
use automatic::Automatic;
use idle::IdleWorkers;
use std::time::Instant;

/// The policy, and what it remembers.
#[derive(Debug)]
pub struct Scaling {
    policy: PoolPolicy,
    /// The application's name, for the log.
    application: String,
    idle: IdleWorkers,
    /// The measurements, with `"processes": "auto"`.
    automatic: Option<Automatic>,
    /// When to look again.
    look_at: Option<Instant>,
    /// Another generation serves the application.
    is_former: bool,
    /// Whether a worker has been forked: until then one is wanted in any case, to show that the application works.
    is_proven: bool,
}

/// How many idle workers a former generation keeps: a request whose body is still on its way may need one.
const KEPT_BY_FORMER: usize = 1;
/// A worker is kept idle for this multiple of the time that the boot of another one takes.
const KEPT_FOR_BOOTS: u32 = 60;

// === impl Scaling ===

impl Scaling {
    /// The policy of a pool of this application. Nothing has been looked at yet.
    pub fn new(plan: &PhpPlan, policy: PoolPolicy, now: Instant) -> Scaling {
        let automatic = match policy {
            PoolPolicy::Automatic(bounds) => Some(Automatic::new(bounds, plan.confined.machine(), now)),
            PoolPolicy::Configured(_) => None,
        };
        Scaling {
            policy,
            application: plan.name.clone(),
            idle: IdleWorkers::default(),
            automatic,
            look_at: policy.spare().map(|_| now),
            is_former: false,
            is_proven: false,
        }
    }

    /// A worker has been forked.
    pub fn on_proven(&mut self) {
        self.is_proven = true;
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Why there are as many workers as there are, with `"processes": "auto"`.
    pub fn reason(&self, workers: &WorkerSet, now: Instant) -> Option<Reason> {
        self.automatic.as_ref().map(|automatic| automatic.reason(workers, now))
    }

    /// How much memory the new workers will take, in bytes: the kernel does not count it yet.
    pub fn promised(&self, workers: &WorkerSet, now: Instant) -> u64 {
        self.automatic.as_ref().map_or(0, |automatic| automatic.promised(workers, now))
    }

    /// The router found too few idle workers, and this number of requests that wait. `promised` is the memory that new
    /// workers of other applications will take, in bytes.
    pub fn on_workers_wanted(&mut self, waiting: usize, promised: u64, workers: &mut WorkerSet, now: Instant) {
        match self.policy {
            _ if self.is_former => self.add_one_for(waiting, workers, now),
            PoolPolicy::Automatic(_) => {
                let Some(automatic) = &mut self.automatic else { return };
                let due = automatic.on_workers_wanted(waiting, promised, now);
                self.look_at = Some(self.look_at.map_or(due, |at| at.min(due)));
                if due <= now {
                    self.size(workers, now);
                }
            }
            PoolPolicy::Configured(pool) => self.adapt(pool, waiting, workers, now),
        }
    }

    /// Retires workers that have been idle for too long, and orders those that are missing.
    pub fn on_time(&mut self, workers: &mut WorkerSet, now: Instant) {
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        match self.policy {
            _ if self.is_former => {}
            PoolPolicy::Automatic(_) => self.size(workers, now),
            PoolPolicy::Configured(pool) => self.adapt(pool, 0, workers, now),
        }
    }

    /// Another generation serves the application: most idle workers are retired, to give their memory back.
    pub fn on_former(&mut self, workers: &mut WorkerSet, now: Instant) {
        self.is_former = true;
        self.idle.look(workers, now);
        for (index, _) in self.idle.indices().into_iter().skip(KEPT_BY_FORMER) {
            self.retire_idle(index, workers);
        }
    }

    /// The last requests of a former generation are few: no policy is needed for them.
    fn add_one_for(&mut self, waiting: usize, workers: &mut WorkerSet, now: Instant) {
        if waiting > 0 && self.idle.look(workers, now) == 0 && self.idle.len() == 0 {
            workers.table.set_target(workers.table.staying() + 1);
        }
    }

    fn adapt(&mut self, pool: Pool, waiting: usize, workers: &mut WorkerSet, now: Instant) {
        if pool.idle_timeout.is_none() {
            return;
        }
        let starting = self.idle.look(workers, now);
        for index in pool.surplus(&self.idle.indices(), now) {
            self.retire_idle(index, workers);
        }
        let waiting = self.idle.workers_for(waiting);
        let demand = Demand { idle: self.idle.len(), starting, all: workers.table.staying(), waiting };
        workers.table.set_target(pool.wanted(demand).max(self.least()));
        self.look_at = pool.next_check(workers.table.target(), now);
    }

    /// Measures, decides, and has workers started or retired.
    fn size(&mut self, workers: &mut WorkerSet, now: Instant) {
        let least = self.least();
        let Some(automatic) = &mut self.automatic else { return };
        let starting = self.idle.look(workers, now);
        let decision = automatic.decide(&self.idle, starting, workers, &self.application, now);
        let (before, wanted) = (workers.table.target(), decision.wanted.max(least));
        let steps = [
            (wanted > before, SizingStep::Grown),
            (decision.surplus > 0, SizingStep::Shrunk),
            (decision.lacks_memory.is_some(), SizingStep::LimitedByMemory),
        ];
        steps.into_iter().filter(|(is_taken, _)| *is_taken).for_each(|(_, step)| workers.tally.resized(step));
        workers.table.set_target(wanted);
        self.retire_longest_idle(decision.surplus, workers, now);
        self.look_at = Some(now + decision.decide_again_in);
    }

    /// Retires the longest-idle workers first, because the others are warm. Busy workers finish their request.
    /// In worker mode, only workers that have been idle for much longer than a boot takes.
    fn retire_longest_idle(&mut self, count: usize, workers: &mut WorkerSet, now: Instant) {
        let kept = workers.boots.cost().saturating_mul(KEPT_FOR_BOOTS);
        let busy = workers.table.running().filter(|worker| kept.is_zero() && !self.idle.contains(*worker));
        let idle = self.idle.longest_first(now.checked_sub(kept).unwrap_or(now));
        let retired: Vec<_> = idle.into_iter().chain(busy).take(count).collect();
        for worker in retired {
            self.idle.remove(worker.index);
            workers.retire(worker);
        }
    }

    fn retire_idle(&mut self, index: u16, workers: &mut WorkerSet) {
        if let Some(worker) = self.idle.remove(index) {
            workers.retire(worker);
        }
    }

    /// Even without spare workers, one shows that the application works.
    fn least(&self) -> usize {
        if self.is_proven { 0 } else { self.policy.at_start() }
    }
}
