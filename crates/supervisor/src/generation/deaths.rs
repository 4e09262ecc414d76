//! What becomes of a generation when one of its processes dies, or must.
//!
//! A worker's death is told the router, which answers its request. A prototype's death leaves its workers to us; those
//! whose process is not known are found by its process group. When a worker broke the channel's rules, all are killed,
//! and none is started before all are dead.

use super::{Generation, Prototype};
use crate::os::process;
use crate::plan::php::Php;
use howdah_channel::WorkerId;
use howdah_protocol::process_end::{EXIT_ROUTER_UNREACHABLE, ProcessEnd};
use howdah_protocol::router_messages::ToRouter;
use rustix::process::Pid;
use std::time::Instant;

// === impl Generation ===

impl Generation {
    /// A child of ours is dead. `false` if it is not one of this application.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, now: Instant) -> bool {
        if matches!(self.prototype, Prototype::Up { pid, .. } if pid == dead) {
            if !self.has_succeeded() {
                self.prototype_died(end, now);
            }
            return true;
        }
        let Some(worker) = self.workers.with_pid(dead) else {
            return false;
        };
        self.worker_ended(worker, dead.as_raw_pid(), end, now);
        true
    }

    /// A worker broke the channel's rules: all of them may have.
    pub fn replace_workers(&mut self, now: Instant) {
        self.replacing = true;
        for process in self.workers.alive().filter_map(|(_, process)| process) {
            process.kill();
        }
        self.kill_nameless(now);
        self.finish_replacing(now);
    }

    pub(super) fn prototype_died(&mut self, end: ProcessEnd, now: Instant) {
        let (lived, had_worked, said) = match &mut self.prototype {
            Prototype::Up { link: None, .. } | Prototype::Ended => {
                self.prototype = Prototype::Ended;
                return;
            }
            Prototype::Up { since, has_forked, said, .. } => (now - *since, *has_forked, said.last_lines()),
            Prototype::Down { .. } | Prototype::Failed => Default::default(),
        };
        let reason = self.failure.get_or_insert_with(|| describe_death(&self.plan.php, end));
        if self.proven {
            tracing::error!("the prototype of {:?} is started again: {reason}", self.plan.name);
        } else if !said.is_empty() {
            reason.push_str(":\n");
            reason.push_str(&said);
        }
        let group = match self.prototype {
            Prototype::Up { group, .. } => Some(group),
            _ => None,
        };
        self.prototype = match self.proven {
            true => Prototype::Down { again: now + self.backoff.after_death(lived, had_worked) },
            false => Prototype::Failed,
        };
        for (worker, process) in self.workers.orphan_all(now) {
            match process {
                // The prototype reaped it, but could not say so any more.
                Some(process) if !process.is_child() => self.worker_died(worker, now),
                Some(_) => self.control.stop_worker(worker),
                None => {
                    self.control.stop_worker(worker);
                    self.nameless.extend(group);
                }
            }
        }
        self.settle_nameless(now);
    }

    /// A prototype may die between the fork of a worker and the word about it. Such a worker counts as alive for as long
    /// as its prototype's group has a child of ours that we do not know: it may be that one.
    pub fn settle_nameless(&mut self, now: Instant) {
        if self.nameless.is_empty() || !self.unknown_children().is_empty() {
            return;
        }
        self.nameless.clear();
        let leaving = self.workers.unidentified_orphans();
        for worker in leaving {
            self.worker_died(worker, now);
        }
    }

    pub(super) fn kill_nameless(&mut self, now: Instant) {
        if !self.workers.unidentified_orphans().is_empty() {
            self.unknown_children().into_iter().for_each(process::Process::kill);
        }
        self.settle_nameless(now);
    }

    pub(super) fn unknown_children(&self) -> Vec<process::Process> {
        let of_dead = |group: i32| self.nameless.iter().any(|dead| dead.as_raw_pid() == group);
        let known = |process| self.workers.alive().any(|(_, worker)| worker == Some(process));
        let children = process::children().into_iter().filter(|child| !child.dead && of_dead(child.group));
        children.map(|child| child.process).filter(|process| !known(*process)).collect()
    }

    pub(super) fn worker_ended(&mut self, worker: WorkerId, pid: i32, end: ProcessEnd, now: Instant) {
        // A prototype in a namespace of processes knows another number.
        let known = self.workers.alive().find(|(alive, _)| *alive == worker).and_then(|(_, process)| process);
        let pid = known.map_or(pid, |process| process.pid.as_raw_pid());
        let was_overdue = self.was_overdue(worker);
        let by_itself = !self.replacing && !self.is_stopping() && !was_overdue && !self.workers.is_leaving(worker);
        if end != ProcessEnd::Code(0) && !self.replacing && !self.is_stopping() && !was_overdue {
            let cause = match end {
                ProcessEnd::Code(EXIT_ROUTER_UNREACHABLE) => ", as a script has closed its descriptors",
                _ => "",
            };
            tracing::warn!("worker of {:?} (pid {pid}) {end}{cause}; another worker is started", self.plan.name);
        }
        let account = self.control.account(worker);
        let at_work = account.is_some_and(|account| account.current.is_some());
        let has_limits = self.plan.limits.requests.is_some() || self.plan.limits.memory.is_some();
        // Between two requests, only the end of its allowance ends a worker like that.
        let is_known = if end == ProcessEnd::Code(0) && (has_limits || was_overdue) && !at_work || self.replacing {
            self.workers.exited(worker, now)
        } else if account.is_some_and(|account| at_work || account.requests > 0) {
            self.workers.died_in_request(worker, now)
        } else {
            self.workers.died(worker, now)
        };
        if is_known {
            let killer = account.and_then(|account| account.current).filter(|_| by_itself);
            self.forget_worker(worker, killer.map(|current| current.name()), now);
        }
    }

    fn worker_died(&mut self, worker: WorkerId, now: Instant) {
        if self.workers.died(worker, now) {
            self.forget_worker(worker, None, now);
        }
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId, killer: Option<(u16, u32)>, now: Instant) {
        self.control.worker_died(worker);
        self.notices.push(ToRouter::WorkerDied { generation: self.id, worker, killer });
        // A worker that ends because another one told it to is the first sign that there is such an order.
        if let Err(violation) = self.control.check_orders()
            && !self.replacing
        {
            tracing::error!("{violation}; all workers of {:?} are replaced", self.plan.name);
            return self.replace_workers(now);
        }
        self.finish_replacing(now);
        self.on_time(now);
    }

    pub(super) fn finish_replacing(&mut self, now: Instant) {
        if self.replacing && self.workers.alive().next().is_none() {
            self.replacing = false;
            self.control.workers_replaced();
            self.notices.push(ToRouter::WorkersReplaced { generation: self.id });
            self.on_time(now);
        }
    }
}

fn describe_death(php: &Php, end: ProcessEnd) -> String {
    match end {
        // The dynamic linker's exit code: it has said on stderr which library is missing.
        ProcessEnd::Code(127) => {
            format!("PHP {} is not installed; install it with `apt install {}`", php.version, php.package())
        }
        _ => format!("its process {end}"),
    }
}
