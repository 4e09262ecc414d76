//! The pools of a generation, and what is asked of all of them at once.

use super::prototype::BrokenRule;
use super::worker_pool::WorkerPool;
use crate::os::processes::process::Process;
use crate::plan::php::application::PhpPlan;
use howdah_channel::{ControlEnd, WorkerId};
use howdah_protocol::messages::prototype::PoolWorker;
use howdah_protocol::messages::router::ToRouter;
use rustix::process::Pid;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// All pools. The first one has the number of the generation.
#[derive(Debug)]
pub struct WorkerPools(Vec<WorkerPool>);

// === impl WorkerPools ===

impl WorkerPools {
    /// The pools of a plan, numbered from `first`. Makes their channels.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for them.
    pub fn new(first: u64, plan: &PhpPlan, router_threads: u16, now: Instant) -> io::Result<WorkerPools> {
        let pool = |(number, pool)| WorkerPool::new(number, plan, pool, router_threads, now);
        Ok(WorkerPools((first..).zip(&plan.pools).map(pool).collect::<Result<_, _>>()?))
    }

    /// For how many threads of the router their channels are made; `None` without a pool.
    pub fn router_threads(&self) -> Option<u16> {
        self.first().map(|pool| pool.workers.control.geometry().threads)
    }

    /// The pool with this number.
    pub fn with_id(&mut self, id: u64) -> Option<&mut WorkerPool> {
        self.iter_mut().find(|pool| pool.id == id)
    }

    /// The pool of a worker that the prototype names.
    pub fn named(&mut self, named: PoolWorker) -> Result<&mut WorkerPool, BrokenRule> {
        self.get_mut(usize::from(named.pool)).ok_or("it named a pool of workers that does not exist")
    }

    /// The worker with this pid.
    pub fn worker_with_pid(&self, pid: Pid) -> Option<PoolWorker> {
        let mut pools = (0..).zip(self.iter());
        pools.find_map(|(index, pool)| Some(PoolWorker { pool: index, worker: pool.workers.table.with_pid(pid)? }))
    }

    // Numbers

    /// Whether a worker was ready in each; in worker mode, all of them.
    pub fn are_proven(&self) -> bool {
        self.iter().all(|pool| pool.workers.boots.is_proven())
    }

    /// Why a worker script does not boot.
    pub fn failure(&self) -> Option<&str> {
        self.iter().find_map(|pool| pool.workers.boots.failure())
    }

    /// How many workers there should be.
    pub fn target(&self) -> usize {
        self.iter().map(|pool| pool.workers.table.target()).sum()
    }

    /// How many workers run, and how many are being started.
    pub fn counts(&self) -> (usize, usize) {
        let counts = self.iter().map(WorkerPool::counts);
        counts.fold((0, 0), |(running, starting), pool| (running + pool.0, starting + pool.1))
    }

    /// How much memory the new workers of all pools but this one will take, in bytes.
    pub fn promised_without(&self, id: u64, now: Instant) -> u64 {
        let others = self.iter().filter(|pool| pool.id != id);
        others.map(|pool| pool.scaling.promised(&pool.workers, now)).sum()
    }

    /// The processes of the workers, as far as they are known.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        self.iter().flat_map(WorkerPool::processes)
    }

    /// The channels and the workers.
    pub fn members(&self) -> Vec<(&ControlEnd, Vec<WorkerId>)> {
        self.iter().map(WorkerPool::members).collect()
    }

    /// When a worker was ordered of the prototype that is not forked yet: the oldest order.
    pub fn oldest_fork_order(&self) -> Option<Instant> {
        self.iter().filter_map(|pool| pool.workers.table.oldest_fork_order()).min()
    }

    /// Whether a worker is dead whose death was not reported.
    pub fn have_dead(&self) -> bool {
        self.iter().any(|pool| pool.workers.has_dead())
    }

    /// Whether no worker is a child of the supervisor.
    pub fn are_over(&self) -> bool {
        self.iter().all(|pool| pool.workers.are_over())
    }

    // Changes

    /// The notices for the router, once.
    pub fn take_notices(&mut self) -> Vec<ToRouter> {
        self.iter_mut().flat_map(|pool| pool.workers.take_notices()).collect()
    }

    /// The prototype is dead: the workers finish their requests and exit.
    pub fn orphan_all(&mut self, group: Option<Pid>, now: Instant) {
        let all: Vec<_> = self.processes().collect();
        self.iter_mut().for_each(|pool| pool.workers.orphan_all(group, &all, now));
    }

    /// Asks all workers to finish what they do and exit.
    pub fn stop_all(&mut self) {
        self.iter_mut().for_each(|pool| pool.workers.stop_all());
    }

    /// Kills all workers.
    pub fn kill_all(&self) {
        self.iter().for_each(|pool| pool.workers.kill_all());
    }
}

impl Deref for WorkerPools {
    type Target = [WorkerPool];

    fn deref(&self) -> &[WorkerPool] {
        &self.0
    }
}

impl DerefMut for WorkerPools {
    fn deref_mut(&mut self) -> &mut [WorkerPool] {
        &mut self.0
    }
}
