//! A pool: the workers of a generation that run the same script, or those of classic mode, and the channel that they share
//! with the router. An application has one, or with several worker scripts one for classic mode and one for each script.
//!
//! The router knows a pool by its number. The first pool has the number of the generation.

use super::overdue::OverdueRequests;
use super::scaling::Scaling;
use super::workers::boots::Boots;
use super::workers::worker_set::WorkerSet;
use crate::os::processes::process::Process;
use crate::plan::php::application::{PhpPlan, PoolPlan};
use crate::policy::sizing::Reason;
use crate::policy::workers::Workers;
use howdah_channel::{ControlEnd, Geometry, WorkerId};
use howdah_protocol::plain_text::plain_and_short;
use std::io;
use std::time::Instant;

/// A pool of workers.
#[derive(Debug)]
pub struct WorkerPool {
    /// Its number.
    pub id: u64,
    /// The path of its script below the root, if it is the pool of one of several worker scripts.
    pub script: Option<String>,
    /// Whether its workers run a worker script.
    pub runs_script: bool,
    /// Its workers.
    pub workers: WorkerSet,
    /// How many there are.
    pub scaling: Scaling,
    /// Its requests that take too long.
    pub overdue: OverdueRequests,
}

/// The numbers of a pool, for the status.
#[derive(Clone, Debug)]
pub struct PoolReport<'p> {
    /// Its number.
    pub id: u64,
    /// The path of its script below the root; `None` is classic mode.
    pub script: Option<&'p str>,
    /// How many workers there should be.
    pub wanted: usize,
    /// How many run, and how many are being started.
    pub counts: (usize, usize),
    /// Why there are as many, with `"processes": "auto"`.
    pub reason: Option<Reason>,
}

// === impl WorkerPool ===

impl WorkerPool {
    /// Makes the channel. Nothing runs yet.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new(id: u64, plan: &PhpPlan, pool: &PoolPlan, router_threads: u16, now: Instant) -> io::Result<WorkerPool> {
        let geometry = Geometry::for_workers(pool.policy.max() as u32, pool.claims(), router_threads);
        let table = Workers::new(pool.policy.at_start() as u32).at_most(pool.policy.max());
        let script = pool.script.as_ref().map(|script| plain_and_short(&script.filename.to_string_lossy()));
        let boots = Boots::new(plan.name.clone(), script, plan.confined.machine().cores());
        Ok(WorkerPool {
            id,
            script: pool.script.as_ref().filter(|_| plan.pools.len() > 1).map(|script| script.name.clone()),
            runs_script: pool.script.is_some(),
            workers: WorkerSet::new(id, plan.name.clone(), table, ControlEnd::create(geometry)?, boots),
            scaling: Scaling::new(plan, pool.policy, now),
            overdue: OverdueRequests::new(plan.limits.timeout, plan.name.clone()),
        })
    }

    /// How many of its workers run, and how many are being started.
    pub fn counts(&self) -> (usize, usize) {
        let (running, starting) = self.workers.table.counts();
        let booting = self.workers.count_booting();
        (running.saturating_sub(booting), starting + booting)
    }

    /// Its numbers.
    pub fn report(&self, now: Instant) -> PoolReport<'_> {
        PoolReport {
            id: self.id,
            script: self.script.as_deref(),
            wanted: self.workers.table.target(),
            counts: self.counts(),
            reason: self.scaling.reason(&self.workers, now),
        }
    }

    /// Its channel and its workers.
    pub fn members(&self) -> (&ControlEnd, Vec<WorkerId>) {
        (&self.workers.control, self.workers.ids().collect())
    }

    /// When it has something to do. Its workers are ordered of a prototype that runs, and counted as dead by one that is down.
    pub fn next_deadline(&self, has_prototype: bool, can_fork: bool, is_down: bool) -> Option<Instant> {
        let deadlines = [
            self.workers.next_deadline(can_fork || is_down).filter(|_| has_prototype),
            self.scaling.next_deadline().filter(|_| can_fork),
            self.overdue.next_deadline(),
            self.workers.boots.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Its workers, each with its process, and whether it is leaving. All of them are if the generation drains.
    pub fn alive(&self, drains: bool) -> impl Iterator<Item = (WorkerId, Option<Process>, bool)> {
        let table = &self.workers.table;
        table.alive().map(move |(worker, process)| (worker, process, drains || table.is_leaving(worker)))
    }

    /// The processes of its workers, as far as they are known.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.workers.table.alive().filter_map(|(_, process)| process)
    }
}
