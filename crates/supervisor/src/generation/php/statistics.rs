//! The numbers of a generation's workers, for the status and the metrics.

use super::opcache::OpcacheCounter;
use super::worker_pool::WorkerPool;
use super::workers::worker_report;
use crate::generation::process_report::{CpuShares, ProcessReport, ReportedState};
use crate::generation::tally::ProcessTally;
use howdah_channel::opcache::OpcacheNumbers;
use std::time::Instant;

/// The numbers that depend on the reports before.
#[derive(Debug, Default)]
pub struct Statistics {
    cpu_shares: CpuShares,
    opcache: OpcacheCounter,
}

// === impl Statistics ===

impl Statistics {
    /// A report of each worker. All of them are leaving if the generation drains.
    pub fn process_reports(&mut self, pools: &[WorkerPool], drains: bool, now: Instant) -> Vec<ProcessReport> {
        let lives = |pid| pools.iter().flat_map(WorkerPool::processes).any(|it| it.pid.as_raw_pid() == pid);
        self.cpu_shares.retain(lives);
        let mut reports = Vec::new();
        for pool in pools {
            for (worker, process, is_leaving) in pool.alive(drains) {
                let control = &pool.workers.control;
                let report = worker_report::of(control, worker, process, is_leaving, &mut self.cpu_shares, now);
                reports.push(ProcessReport { worker_script: pool.script.clone(), ..report });
            }
        }
        reports
    }

    /// The sums of all workers so far.
    pub fn tally(&self, pools: &[WorkerPool]) -> ProcessTally {
        let mut tally = ProcessTally::default();
        for WorkerPool { workers, .. } in pools {
            tally.add(workers.tally);
            workers.ids().filter_map(|worker| workers.control.account(worker)).for_each(|account| {
                tally.add_account(account);
            });
        }
        tally.opcache = self.opcache.update(opcache_report(pools));
        tally
    }
}

/// The state of each worker with the script of its pool, without a look at /proc. All of them are leaving if the generation
/// drains.
pub fn process_states(pools: &[WorkerPool], drains: bool) -> Vec<(Option<&str>, ReportedState)> {
    let mut states = Vec::new();
    for pool in pools {
        for (worker, process, is_leaving) in pool.alive(drains) {
            let state = worker_report::state(&pool.workers.control, worker, process, is_leaving);
            states.push((pool.script.as_deref(), state));
        }
    }
    states
}

/// The last numbers of opcache, which all pools share, that workers have reported; `None` before they have.
pub fn opcache_report(pools: &[WorkerPool]) -> Option<OpcacheNumbers> {
    let reports = pools.iter().filter_map(|pool| pool.workers.control.opcache());
    reports.max_by_key(|(reported_at, _)| *reported_at).map(|(_, numbers)| numbers)
}
