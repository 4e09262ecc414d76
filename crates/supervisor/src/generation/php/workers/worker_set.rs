//! The workers of a generation: their table, the channel that they share with the router, and their deaths.
//!
//! The router is notified of each worker's start and death, because it answers the request of a dead worker. Workers
//! whose prototype has died are children of the supervisor. If the prototype died before it reported their pids, they
//! are found by its process group. When a worker broke the channel's rules, all are killed, and none is started before
//! all are dead; if that repeats, as with scripts that fork natively, after a growing delay.

use super::boots::Boots;
use super::worker_exit::WorkerExit;
use crate::generation::tally::{Death, ProcessTally};
use crate::os::processes::process::{self, Process};
use crate::policy::pace::Backoff;
use crate::policy::workers::Workers;
use howdah_channel::account::Current;
use howdah_channel::{ControlEnd, WorkerId};
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::router::ToRouter;
use rustix::process::Pid;
use std::time::Instant;

/// The workers.
#[derive(Debug)]
pub struct WorkerSet {
    generation: u64,
    /// The application's name, for the log.
    application: String,
    /// Which workers there are, and which are due.
    pub table: Workers,
    /// The supervisor's end of the channel.
    pub control: ControlEnd,
    /// Which workers boot, in worker mode.
    pub boots: Boots,
    /// The numbers of the workers, without the accounts of those that live.
    pub tally: ProcessTally,
    /// The process groups of dead prototypes that may have a worker whose pid is not known.
    orphan_groups: Vec<Pid>,
    /// The workers of other pools when the last prototype died: they are in its process group, too.
    of_other_pools: Vec<Process>,
    /// A worker broke the channel's rules: none is started before all are dead.
    is_replacing: bool,
    /// The delay before workers start again after that.
    replacement_backoff: Backoff,
    /// When workers could start last, or can start again.
    started_from: Option<Instant>,
    /// Notices that the router has not received yet.
    notices: Vec<ToRouter>,
}

// === impl WorkerSet ===

impl WorkerSet {
    /// Without workers.
    pub fn new(generation: u64, application: String, table: Workers, control: ControlEnd, boots: Boots) -> WorkerSet {
        WorkerSet {
            generation,
            application,
            table,
            control,
            boots,
            tally: ProcessTally::default(),
            orphan_groups: Vec::new(),
            of_other_pools: Vec::new(),
            is_replacing: false,
            replacement_backoff: Backoff::default(),
            started_from: None,
            notices: Vec::new(),
        }
    }

    /// All workers that live.
    pub fn ids(&self) -> impl Iterator<Item = WorkerId> {
        self.table.alive().map(|(worker, _)| worker)
    }

    /// The notices for the router, once.
    pub fn take_notices(&mut self) -> Vec<ToRouter> {
        std::mem::take(&mut self.notices)
    }

    /// The request that a worker claims to run.
    pub fn current(&self, worker: WorkerId) -> Option<Current> {
        self.control.account(worker).and_then(|account| account.current)
    }

    /// Whether a worker is dead whose death was not reported.
    pub fn has_dead(&self) -> bool {
        self.table.alive().any(|(_, process)| process.is_some_and(Process::is_dead))
    }

    /// How many workers run, and have not booted.
    pub fn count_booting(&self) -> usize {
        let boots =
            |(worker, process): &(WorkerId, Option<Process>)| process.is_some() && self.boots.is_booting(*worker);
        self.table.alive().filter(boots).count()
    }

    // Starts

    /// When [`Self::start_due`] or [`Self::kill_expired_orphans`] has something to do.
    pub fn next_deadline(&self, can_start: bool) -> Option<Instant> {
        if !can_start || self.is_replacing || self.boots.room() == 0 {
            return self.table.next_orphan_deadline();
        }
        let start = self.table.next_deadline().map(|at| self.started_from.map_or(at, |from| at.max(from)));
        start.into_iter().chain(self.table.next_orphan_deadline()).min()
    }

    /// The workers that the prototype must fork now.
    pub fn start_due(&mut self, now: Instant) -> Vec<WorkerId> {
        if self.is_replacing || self.started_from.is_some_and(|from| from > now) {
            return Vec::new();
        }
        self.started_from.get_or_insert(now);
        let due = self.table.start_due(self.boots.room(), now);
        due.iter().for_each(|worker| self.boots.on_ordered(*worker, now));
        let generation = self.generation;
        self.notices.extend(due.iter().map(|worker| ToRouter::WorkerStarted { generation, worker: *worker }));
        due
    }

    /// The prototype has forked this worker. Returns `false` if it had no such order.
    pub fn on_started(&mut self, worker: WorkerId, process: Option<Process>) -> bool {
        let is_known = self.table.started(worker, process);
        self.tally.starts += u64::from(is_known);
        self.boots.on_started(worker, process);
        if let Some(process) = process.filter(|_| is_known && self.is_replacing) {
            process.kill();
        }
        is_known
    }

    /// The prototype could not fork this worker. Returns `false` if it had no such order.
    pub fn on_not_forked(&mut self, worker: WorkerId, now: Instant) -> bool {
        let is_known = self.table.not_forked(worker, now);
        if is_known {
            self.forget(worker, None, now);
        }
        is_known
    }

    /// Asks this worker to exit when it has finished what it does.
    pub fn retire(&mut self, worker: WorkerId) {
        self.table.retire(worker);
        self.control.stop_worker(worker);
    }

    /// Asks all workers, future ones too, to exit when they have finished what they do.
    pub fn stop_all(&mut self) {
        self.control.stop_all(self.table.alive().map(|(worker, _)| worker));
    }

    // Deaths

    /// Looks which workers have booted.
    pub fn look_at_boots(&mut self, now: Instant) {
        let control = &self.control;
        let is_ready = |worker| control.account(worker).is_some();
        self.boots.on_time(is_ready, self.table.is_complete(), now);
    }

    /// A worker has exited. `output` is what the processes of this generation wrote last.
    pub fn on_exit(
        &mut self,
        worker: WorkerId,
        pid: i32,
        exit: WorkerExit,
        output: impl FnOnce() -> String,
        now: Instant,
    ) {
        // A prototype in a PID namespace reports another pid.
        let known = self.table.alive().find(|(alive, _)| *alive == worker).and_then(|(_, process)| process);
        let pid = known.map_or(pid, |process| process.pid.as_raw_pid());
        let is_unexpected = !self.is_replacing && !exit.is_stopping && !exit.was_overdue;
        let by_itself = is_unexpected && !self.table.is_leaving(worker);
        let account = self.control.account(worker);
        if is_unexpected {
            self.boots.on_exit(worker, account.is_some(), &exit.end.to_string(), output);
        }
        if exit.end != ProcessEnd::Code(0) && is_unexpected {
            let is_replaced = !self.table.is_leaving(worker) && self.boots.failure().is_none();
            tracing::warn!("worker of {:?} (pid {pid}) {}", self.application, exit.describe(is_replaced));
        }
        let in_request = account.is_some_and(|account| account.current.is_some());
        let is_known = if exit.is_in_order(in_request) || self.is_replacing {
            self.table.exited(worker, now)
        } else if account.is_some_and(|account| in_request || account.requests > 0) {
            self.table.died_in_request(worker, now)
        } else {
            self.table.died(worker, now)
        };
        if is_known {
            self.tally.died(if self.is_replacing { Death::Replaced } else { exit.death(in_request, !by_itself) });
            // Of several requests it is not known which one killed the worker.
            let has_killer = by_itself && self.control.geometry().claims == 1;
            let killer = account.and_then(|account| account.current).filter(|_| has_killer);
            self.forget(worker, killer.map(|current| current.name()), now);
        }
    }

    /// The prototype is dead: its workers finish their requests and exit. `all` are the processes of all its pools.
    pub fn orphan_all(&mut self, group: Option<Pid>, all: &[Process], now: Instant) {
        self.boots.on_all_lost();
        let is_own = |process: &&Process| self.table.alive().any(|(_, own)| own == Some(**process));
        self.of_other_pools = all.iter().filter(|process| !is_own(process)).copied().collect();
        for (worker, process) in self.table.orphan_all(now) {
            match process {
                // The prototype reaped it, but died before it could report that.
                Some(process) if !process.is_child() => self.on_death(worker, now),
                Some(_) => self.control.stop_worker(worker),
                None => {
                    self.control.stop_worker(worker);
                    self.orphan_groups.extend(group);
                }
            }
        }
        self.settle_orphans(now);
    }

    /// Counts orphans without a known pid as dead once no process can be one of them. A prototype may die between the fork of
    /// a worker and the message about it: while its process group has an unknown child of the supervisor, that may be
    /// this worker.
    pub fn settle_orphans(&mut self, now: Instant) {
        if self.orphan_groups.is_empty() || !self.unknown_children().is_empty() {
            return;
        }
        self.orphan_groups.clear();
        for worker in self.table.unidentified_orphans() {
            self.on_death(worker, now);
        }
    }

    /// Kills workers of a dead prototype that should have exited by now.
    pub fn kill_expired_orphans(&mut self, now: Instant) {
        for (_, process) in self.table.expired_orphans(now) {
            match process {
                Some(process) => process.kill(),
                None => self.kill_unidentified(now),
            }
        }
    }

    /// Kills all workers, because one broke the channel's rules: all of them may have.
    pub fn replace_all(&mut self, now: Instant) {
        self.is_replacing = true;
        self.boots.on_all_lost();
        for process in self.table.alive().filter_map(|(_, process)| process) {
            process.kill();
        }
        self.kill_unidentified(now);
        self.finish_replacing(now);
    }

    /// Kills all workers.
    pub fn kill_all(&self) {
        for process in self.table.alive().filter_map(|(_, process)| process) {
            process.kill();
        }
        if !self.orphan_groups.is_empty() {
            self.unknown_children().into_iter().for_each(Process::kill);
        }
    }

    /// Whether a worker is ready, and all are not being replaced.
    pub fn has_ready(&self) -> bool {
        let is_ready = |worker| !self.boots.is_booting(worker) && self.control.account(worker).is_some();
        // Nothing boots in classic mode.
        !self.is_replacing && (self.boots.is_proven() || self.table.alive().any(|(worker, _)| is_ready(worker)))
    }

    /// Whether no worker is a child of the supervisor.
    pub fn are_over(&self) -> bool {
        !self.table.alive().any(|(_, process)| process.is_some_and(Process::is_child))
            && (self.orphan_groups.is_empty() || self.unknown_children().is_empty())
    }

    fn kill_unidentified(&mut self, now: Instant) {
        if !self.table.unidentified_orphans().is_empty() {
            self.unknown_children().into_iter().for_each(Process::kill);
        }
        self.settle_orphans(now);
    }

    /// The children of the supervisor in the groups of dead prototypes that are no known worker.
    fn unknown_children(&self) -> Vec<Process> {
        // The look at all processes takes long on a machine with many.
        if !self.orphan_groups.iter().any(|group| process::has_child_in(*group)) {
            return Vec::new();
        }
        let of_dead = |group: i32| self.orphan_groups.iter().any(|dead| dead.as_raw_pid() == group);
        let is_own = |process| self.table.alive().any(|(_, worker)| worker == Some(process));
        let is_known = |process| is_own(process) || self.of_other_pools.contains(&process);
        let children = process::children().into_iter().filter(|child| !child.dead && of_dead(child.group));
        children.map(|child| child.process).filter(|process| !is_known(*process)).collect()
    }

    fn on_death(&mut self, worker: WorkerId, now: Instant) {
        if self.table.died(worker, now) {
            self.tally.died(Death::Lost);
            self.forget(worker, None, now);
        }
    }

    /// Notifies the router of a death. `killer` is the request that killed the worker.
    fn forget(&mut self, worker: WorkerId, killer: Option<(u16, u32)>, now: Instant) {
        self.control.account(worker).into_iter().for_each(|account| self.tally.add_account(account));
        self.control.worker_died(worker);
        self.boots.forget(worker);
        self.notices.push(ToRouter::WorkerDied { generation: self.generation, worker, killer });
        // A worker that exits because another worker ordered it to is the first sign of such an order.
        if let Err(violation) = self.control.check_orders()
            && !self.is_replacing
        {
            tracing::error!("{violation}; all workers of {:?} are replaced", self.application);
            return self.replace_all(now);
        }
        self.finish_replacing(now);
    }

    fn finish_replacing(&mut self, now: Instant) {
        if self.is_replacing && self.table.alive().next().is_none() {
            self.is_replacing = false;
            let lifetime = now.saturating_duration_since(self.started_from.unwrap_or(now));
            self.started_from = Some(now + self.replacement_backoff.after_death(lifetime, false));
            self.control.workers_replaced();
            self.notices.push(ToRouter::WorkersReplaced { generation: self.generation });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_channel::Geometry;
    use std::time::Duration;

    #[test]
    fn repeated_violations_delay_the_next_workers() {
        let control = ControlEnd::create(Geometry::for_workers(1, 1, 1)).unwrap();
        let mut workers =
            WorkerSet::new(1, "shop".to_owned(), Workers::new(1), control, Boots::new("shop".to_owned(), None, 1.0));
        let mut now = Instant::now();
        let mut replace = |now: &mut Instant| {
            let violated = *now;
            let worker = workers.start_due(*now)[0];
            assert!(workers.on_started(worker, None));
            workers.replace_all(*now);
            assert!(workers.start_due(*now).is_empty(), "one is alive");
            let exit =
                WorkerExit { end: ProcessEnd::Signal(9), is_stopping: false, was_overdue: false, may_exit: false };
            workers.on_exit(worker, 1, exit, String::new, *now);
            *now = workers.next_deadline(true).unwrap().max(*now);
            *now - violated
        };
        let delays: Vec<_> = (0..10).map(|_| replace(&mut now).as_millis()).collect();
        assert_eq!(delays, [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000]);
        // Workers that ran for a while before that are replaced at once.
        now += Duration::from_secs(10);
        assert_eq!(replace(&mut now), Duration::ZERO);
    }

    #[test]
    fn a_worker_that_was_asked_to_exit_is_not_replaced() {
        let now = Instant::now();
        let control = ControlEnd::create(Geometry::for_workers(1, 1, 1)).unwrap();
        let mut workers =
            WorkerSet::new(1, "shop".to_owned(), Workers::new(1), control, Boots::new("shop".to_owned(), None, 1.0));
        let worker = workers.start_due(now)[0];
        assert!(workers.on_started(worker, None));
        workers.retire(worker);
        let exit = WorkerExit { end: ProcessEnd::Signal(11), is_stopping: false, was_overdue: false, may_exit: false };
        workers.on_exit(worker, 1, exit, String::new, now);
        assert_eq!(workers.table.next_deadline(), None, "no other worker is due");
    }
}
