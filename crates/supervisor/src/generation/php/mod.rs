//! A generation of a PHP application: a prototype, its workers, and the channel that they share with the router.
//!
//! [`PhpGeneration`] owns the parts and passes events from one to the other. Each part owns its state:
//!
//! - [`prototype`]: its process, its start, its death, and whether it answers
//! - [`worker_pools`]: all its pools; [`worker_pool`]: the workers that run the same script. All of the following belong to one of
//!   these pools
//! - [`workers`]: the workers of a pool: their channel, their boots, and their deaths
//! - [`scaling`]: how many workers there are, from which are idle and, with `auto`, what they use
//! - [`overdue`]: requests that take too long; [`stopped_processes`]: those that a signal has stopped
//! - [`ending`]: when what still runs is killed
//! - [`recording`]: where the time goes, and which memory is kept
//! - [`statistics`]: the numbers of the workers, for the status and the metrics
//! - [`router_messages`]: what a router is sent of it
//!
//! When a worker dies, [`policy::workers`](crate::policy::workers) decides when the next one starts, and the prototype
//! forks it on order. A prototype that dies is started again by the supervisor, on the same channel. Its workers become children of the supervisor, finish their requests and exit. A generation that never
//! forked a worker does not start again: it reports its failure.

mod ending;
mod opcache;
mod overdue;
pub mod prototype;
pub mod recording;
mod router_messages;
mod scaling;
mod statistics;
mod stopped_processes;
pub mod worker_pool;
mod worker_pools;
mod workers;

use crate::generation::process_report::{ProcessReport, ReportedState};
use crate::generation::tally::ProcessTally;
use crate::os::files::memory_file::memory_file;
use crate::os::files::slow_log::SlowLogFile;
use crate::os::identity::UserAccount;
use crate::os::processes::process::{PidClaim, Process};
use crate::plan::php::application::{PhpPlan, Release};
use crate::plan::php::executables::Php;
use ending::{Ending, SCRIPT_GRACE};
use howdah_channel::WorkerId;
use howdah_channel::opcache::OpcacheNumbers;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::prototype::{FromPrototype, PoolWorker, ToPrototype};
use howdah_protocol::messages::router::ToRouter;
use prototype::{BootResources, BrokenRule, LoadedPhp, Prototype, PrototypeDeath};
use recording::{Recorder, RecordingOutcome, Subject};
use rustix::event::EventfdFlags;
use rustix::process::Pid;
use statistics::Statistics;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use stopped_processes::StoppedProcesses;
use tokio::sync::oneshot;

use worker_pool::{PoolReport, WorkerPool};
use worker_pools::WorkerPools;
use workers::worker_exit::WorkerExit;

/// A running PHP application.
#[derive(Debug)]
pub struct PhpGeneration {
    id: u64,
    plan: PhpPlan,
    /// When it was made.
    born: Instant,
    /// One eventfd for each router thread.
    bells: Vec<OwnedFd>,
    prototype: Prototype,
    pools: WorkerPools,
    stopped: StoppedProcesses,
    recorder: Recorder,
    statistics: Statistics,
    /// Another generation serves the application: this one finishes the requests that it has.
    is_former: bool,
    /// When to check the length of the slow log.
    slow_log_at: Option<Instant>,
    ending: Ending,
}

/// How many messages of a dead prototype are read. A socket holds fewer, unless another process still sends.
const MAX_PENDING: usize = 4096;
/// How often the length of the slow log is checked.
const SLOW_LOG_INTERVAL: Duration = Duration::from_secs(60);

// === impl PhpGeneration ===

impl PhpGeneration {
    /// Makes the channel. Nothing runs yet.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new(id: u64, plan: PhpPlan, router_threads: u16, now: Instant) -> io::Result<PhpGeneration> {
        let bell = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let pools = WorkerPools::new(id, &plan, router_threads, now)?;
        let threads = pools.router_threads().unwrap_or(router_threads);
        Ok(PhpGeneration {
            id,
            born: now,
            pools,
            bells: (0..threads).map(bell).collect::<Result<_, _>>()?,
            prototype: Prototype::new(now),
            stopped: StoppedProcesses::new(now),
            recorder: Recorder::new()?,
            statistics: Statistics::default(),
            is_former: false,
            slow_log_at: None,
            ending: Ending::None,
            plan,
        })
    }

    // Properties

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this is the number of one of its pools.
    pub fn has_pool(&self, id: u64) -> bool {
        self.pools.iter().any(|pool| pool.id == id)
    }

    /// Its pools.
    pub fn pools(&self) -> impl Iterator<Item = PoolReport<'_>> {
        let now = Instant::now();
        self.pools.iter().map(move |pool| pool.report(now))
    }

    /// Its application's name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// The PHP that runs it.
    pub fn php(&self) -> &Php {
        &self.plan.php
    }

    /// The user as which it runs.
    pub fn account(&self) -> &UserAccount {
        &self.plan.account
    }

    /// The PHP that its prototype has loaded.
    pub fn loaded(&self) -> Option<&LoadedPhp> {
        self.prototype.loaded()
    }

    /// Which release it runs.
    pub fn release(&self) -> &Release {
        &self.plan.release
    }

    /// When it was made. It has read all files that were written before.
    pub fn born(&self) -> Instant {
        self.born
    }

    /// Where its slow requests are logged.
    pub fn slow_log(&self) -> Option<&SlowLogFile> {
        self.plan.slow_log.as_ref()
    }

    /// Whether it works: PHP is loaded, and a worker was forked. In worker mode, all workers have booted.
    pub fn is_proven(&self) -> bool {
        self.prototype.is_proven() && self.pools.are_proven()
    }

    /// Whether each of its pools has a worker that is ready.
    pub fn is_usable(&self) -> bool {
        self.prototype.is_proven() && self.prototype.is_up() && self.pools.iter().all(|pool| pool.workers.has_ready())
    }

    /// Takes it as proven with the workers that it has.
    pub fn go_on(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.workers.boots.go_on());
    }

    /// Why PHP or the worker script does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        self.prototype.failure().or_else(|| self.pools.failure())
    }

    /// How many workers there should be.
    pub fn processes(&self) -> usize {
        self.pools.target()
    }

    /// How many of its workers run, and how many are being started.
    pub fn process_counts(&self) -> (usize, usize) {
        self.pools.counts()
    }

    /// How much memory the new workers of its pools, without this one, will take, in bytes: the kernel does not count it
    /// yet.
    pub fn promised_without(&self, id: u64, now: Instant) -> u64 {
        self.pools.promised_without(id, now)
    }

    /// A report of each worker. All of them are leaving if the generation drains.
    pub fn process_reports(&mut self, drains: bool, now: Instant) -> Vec<ProcessReport> {
        self.statistics.process_reports(&self.pools, drains, now)
    }

    /// The state of each worker with the script of its pool, without a look at /proc. All of them are leaving if the
    /// generation drains.
    pub fn process_states(&self, drains: bool) -> Vec<(Option<&str>, ReportedState)> {
        statistics::process_states(&self.pools, drains)
    }

    /// How much memory its workers have for themselves, in bytes.
    pub fn private_bytes(&self) -> u64 {
        self.pools.processes().filter_map(Process::private_bytes).sum()
    }

    /// The numbers of its workers.
    pub fn tally(&self) -> ProcessTally {
        self.statistics.tally(&self.pools)
    }

    /// The last numbers of opcache that its workers have reported; `None` before they have.
    pub fn opcache_report(&self) -> Option<OpcacheNumbers> {
        statistics::opcache_report(&self.pools)
    }

    // The router

    /// The messages that describe it to a router, with their descriptors.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for them.
    pub fn for_router(&self) -> io::Result<Vec<(ToRouter, Vec<OwnedFd>)>> {
        router_messages::describe(&self.plan, &self.pools, &self.bells)
    }

    /// The requests of its warm-up, in a file.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn warm_up(&self) -> io::Result<OwnedFd> {
        memory_file(&serde_json::to_vec(&self.plan.release.warm_up)?)
    }

    /// The notices for the router, once.
    pub fn take_notices(&mut self) -> Vec<ToRouter> {
        self.pools.take_notices()
    }

    /// The router found too few idle workers in a pool for the requests that wait. `promised` is the memory that new workers
    /// of other pools and applications will take, in bytes.
    pub fn on_workers_wanted(&mut self, id: u64, waiting: u64, promised: u64, now: Instant) {
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        if let Some(pool) = self.pools.with_id(id) {
            pool.scaling.on_workers_wanted(waiting, promised, &mut pool.workers, now);
        }
        self.on_time(now);
    }

    /// The router reports that a worker takes longer for this request than `limits/timeout` allows.
    pub fn on_overdue(&mut self, id: u64, worker: WorkerId, request: (u16, u32), now: Instant) {
        if let Some(pool) = self.pools.with_id(id) {
            pool.overdue.on_report(worker, request, &pool.workers, now);
        }
    }

    /// A worker of this pool broke the channel's rules: all its workers are replaced.
    pub fn replace_workers(&mut self, id: u64, now: Instant) {
        if let Some(pool) = self.pools.with_id(id) {
            pool.workers.replace_all(now);
        }
        self.on_time(now);
    }

    /// Another generation serves its application: most idle workers are retired.
    pub fn on_former(&mut self, now: Instant) {
        self.is_former = true;
        self.pools.iter_mut().for_each(|pool| pool.scaling.on_former(&mut pool.workers, now));
    }

    // The API

    /// The time until the running recording ends; `None` if none is running.
    pub fn recording_time_left(&self, now: Instant) -> Option<Duration> {
        self.recorder.time_left(now)
    }

    /// Whether its workers run a worker script.
    pub fn has_worker_script(&self) -> bool {
        self.pools.iter().any(|pool| pool.runs_script)
    }

    /// Begins a recording. A running one is replaced: see [`Self::recording_time_left`].
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn begin_recording(
        &mut self,
        subject: Subject,
        duration: Duration,
        now: Instant,
    ) -> io::Result<oneshot::Receiver<RecordingOutcome>> {
        self.recorder.begin(&self.pools.members(), subject, duration, now)
    }

    /// The warm-up begins: what the processes wrote before does not concern it.
    pub fn begin_warm_up(&mut self) {
        self.prototype.forget_output();
    }

    /// The last lines that its processes wrote to standard error during the warm-up; empty for none.
    pub fn warm_up_output(&mut self) -> String {
        self.prototype.last_output()
    }

    // The prototype

    /// The next message of the prototype; `None`, once, when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromPrototype>> {
        self.prototype.poll_receive(cx)
    }

    /// Reads all messages that are there already. A prototype that has died may have sent why.
    pub fn receive_pending(&mut self, now: Instant) {
        for _ in 0..MAX_PENDING {
            let Some(message) = self.prototype.try_receive() else { return };
            self.on_message(message, now);
        }
    }

    /// The prototype has closed its socket, or sent something that is no message.
    pub fn on_close(&mut self, now: Instant) {
        match self.prototype.is_broken() {
            true => self.prototype.on_breach("it sent something that is no message", &self.plan.name),
            false => self.prototype.on_close(now),
        }
    }

    /// A message of the prototype. Code of the application may run in it, so it may send anything: one that breaks the
    /// protocol is killed.
    pub fn on_message(&mut self, message: FromPrototype, now: Instant) {
        let handled = match message {
            FromPrototype::Booted { php_version, opcache } => {
                let booted = self.prototype.on_booted(LoadedPhp { version: php_version, opcache });
                if self.has_worker_script() {
                    // Its output until now is no reason why the worker script does not boot.
                    self.prototype.forget_output();
                }
                if booted.is_ok() && !opcache {
                    tracing::warn!(
                        "the application {:?} runs without opcache, several times slower; is it installed, and \
                         opcache.enable on?",
                        self.plan.name
                    );
                }
                booted
            }
            FromPrototype::Failed { reason } => self.prototype.on_failed(reason),
            FromPrototype::Moved { pid } => self.prototype.on_moved(pid, &self.plan),
            FromPrototype::WorkerStarted { worker, pid } => self.on_worker_started(worker, pid, now),
            FromPrototype::WorkerNotForked { worker } => self.on_worker_not_forked(worker, now),
            FromPrototype::Pong => {
                self.prototype.on_pong();
                Ok(())
            }
            FromPrototype::WorkerExited { worker, pid, end } => self.on_worker_exited(worker, pid, end, now),
        };
        match handled {
            Ok(()) => self.on_time(now),
            Err(rule) => self.prototype.on_breach(rule, &self.plan.name),
        }
    }

    fn on_worker_not_forked(&mut self, named: PoolWorker, now: Instant) -> Result<(), BrokenRule> {
        match self.pools.named(named)?.workers.on_not_forked(named.worker, now) {
            true => {
                self.prototype.on_fork_answer(now);
                Ok(())
            }
            false => Err("it reported a fork that failed without an order"),
        }
    }

    fn on_worker_started(&mut self, named: PoolWorker, pid: i32, now: Instant) -> Result<(), BrokenRule> {
        self.prototype.on_fork_answer(now);
        let process = match self.prototype.check_claim(pid) {
            PidClaim::Valid(process) => Some(process),
            PidClaim::Gone => None,
            PidClaim::Invalid => return Err("it reported a pid that is not its child"),
        };
        if !self.pools.named(named)?.workers.on_started(named.worker, process) {
            return Err("it started a worker without an order");
        }
        self.prototype.on_forked();
        Ok(())
    }

    fn on_worker_exited(
        &mut self,
        named: PoolWorker,
        pid: i32,
        end: ProcessEnd,
        now: Instant,
    ) -> Result<(), BrokenRule> {
        let worker = named.worker;
        let known = self.pools.named(named)?.workers.table.alive().find(|(alive, _)| *alive == worker);
        match known {
            None => Err("it reported the death of a worker that does not live"),
            // The prototype reaps a worker before it reports its death. A worker that still runs would answer a request
            // that is given up.
            Some((_, Some(process))) if process.exists() => Err("it reported a live worker as dead"),
            Some(_) => self.on_worker_exit(named, pid, end, now),
        }
    }

    fn on_worker_exit(&mut self, named: PoolWorker, pid: i32, end: ProcessEnd, now: Instant) -> Result<(), BrokenRule> {
        let pool = self.pools.named(named)?;
        let exit = WorkerExit {
            end,
            is_stopping: self.prototype.is_stopping(),
            was_overdue: pool.overdue.has(named.worker),
            may_exit: self.plan.limits.requests.is_some() || self.plan.limits.memory.is_some() || pool.runs_script,
        };
        pool.workers.on_exit(named.worker, pid, exit, || self.prototype.last_output(), now);
        Ok(())
    }

    /// Kills the prototype if a message to it failed. Another one starts.
    pub fn kill_prototype_if_send_failed(&mut self) {
        self.prototype.kill_if_send_failed(&self.plan.name);
    }

    // Deaths

    /// Whether this is the process of the prototype.
    pub fn is_prototype(&self, pid: Pid) -> bool {
        self.prototype.pid() == Some(pid)
    }

    /// A child of the supervisor is dead. Returns `false` if it belongs to another application.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, now: Instant) -> bool {
        if self.prototype.pid() == Some(dead) {
            let death = self.prototype.on_death(end, &self.plan, now);
            // Another prototype starts when the time is looked at, not now: a change that waits for this generation must
            // see its failure first.
            self.on_prototype_death(death, now);
        } else if let Some(worker) = self.pools.worker_with_pid(dead)
            && self.on_worker_exit(worker, dead.as_raw_pid(), end, now).is_ok()
        {
            self.on_time(now);
        } else {
            return false;
        }
        true
    }

    fn on_prototype_death(&mut self, death: PrototypeDeath, now: Instant) {
        match death {
            PrototypeDeath::Expected => {}
            PrototypeDeath::OrphansWorkers(group) => self.pools.orphan_all(group, now),
        }
    }

    /// Counts workers of a dead prototype as dead once no process can be one of them.
    pub fn settle_orphans(&mut self, now: Instant) {
        self.pools.iter_mut().for_each(|pool| pool.workers.settle_orphans(now));
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (can_fork, is_down) = (self.prototype.can_fork(), self.prototype.is_down());
        let has_prototype = self.prototype.is_up() || is_down;
        let of_pool = |pool: &WorkerPool| pool.next_deadline(has_prototype, can_fork, is_down);
        let deadlines = [
            self.prototype.next_deadline(self.pools.oldest_fork_order()),
            self.pools.iter().filter_map(of_pool).min(),
            Some(self.stopped.deadline()).filter(|_| self.prototype.is_up()),
            self.recorder.next_deadline(),
            self.slow_log_at.filter(|_| !self.is_former),
            self.ending.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due: starts a prototype, orders workers, kills processes that should have exited.
    pub fn on_time(&mut self, now: Instant) {
        if self.prototype.is_start_due(now) {
            self.start_prototype(now);
        }
        self.kill_lingering(now);
        self.prototype.on_time(&self.plan, self.pools.oldest_fork_order(), || self.pools.have_dead(), now);
        let prototype = self.prototype.pid();
        self.stopped.on_time(prototype, self.pools.processes(), &self.plan.name, now);
        self.recorder.on_time(|| self.pools.members(), now);
        self.rotate_slow_log(now);
        for pool in self.pools.iter_mut() {
            pool.overdue.on_time(&pool.workers, now);
            pool.workers.kill_expired_orphans(now);
            pool.workers.look_at_boots(now);
        }
        let (is_proven, can_fork) = (self.is_proven(), self.prototype.can_fork());
        for (index, pool) in (0..).zip(self.pools.iter_mut()) {
            if is_proven {
                pool.scaling.on_proven();
            }
            if can_fork {
                pool.scaling.on_time(&mut pool.workers, now);
                for worker in pool.workers.start_due(now) {
                    self.prototype.send(ToPrototype::StartWorker(PoolWorker { pool: index, worker }));
                }
            }
        }
    }

    fn start_prototype(&mut self, now: Instant) {
        let resources = self.boot_resources();
        match self.prototype.start(&self.plan, resources, now) {
            Ok(()) => self.pools.iter_mut().for_each(|pool| pool.overdue.begin(now)),
            Err(death) => self.on_prototype_death(death, now),
        }
    }

    fn boot_resources(&self) -> io::Result<BootResources> {
        Ok(BootResources {
            channels: self
                .pools
                .iter()
                .map(|pool| Ok((pool.workers.control.geometry(), pool.workers.control.memfd().try_clone_to_owned()?)))
                .collect::<io::Result<_>>()?,
            bells: router_messages::clones(&self.bells)?,
            samples: self.recorder.file()?,
            // A generation that has run goes on running if a script is missing for a moment.
            checks_paths: !self.prototype.is_proven(),
        })
    }

    fn rotate_slow_log(&mut self, now: Instant) {
        if let Some(log) = &self.plan.slow_log
            && !self.is_former
            && self.slow_log_at.is_none_or(|at| at <= now)
        {
            self.slow_log_at = Some(now + SLOW_LOG_INTERVAL);
            log.rotate_if_long(&self.plan.name);
        }
    }

    // Its end

    /// Asks all processes to finish what they do and exit. The router has released the generation, so no client waits:
    /// only scripts still run that go on after their answer, or after their client has left.
    pub fn stop(&mut self, now: Instant) {
        self.ending.on_asked(now);
        self.recorder.abort(&self.pools.members());
        self.pools.stop_all();
        self.prototype.stop();
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        self.stop(Instant::now());
        self.kill_all();
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        self.prototype.is_ended() && self.pools.are_over()
    }

    /// Kills processes that did not exit in time.
    fn kill_lingering(&mut self, now: Instant) {
        if self.ending.deadline().is_some_and(|at| at <= now) {
            tracing::warn!(
                "killing scripts of a drained generation of {:?}, {} s after the router released it",
                self.plan.name,
                SCRIPT_GRACE.as_secs()
            );
            self.kill_all();
        }
    }

    fn kill_all(&mut self) {
        self.ending = Ending::Killed;
        self.prototype.kill_group();
        self.pools.kill_all();
    }
}

#[cfg(test)]
mod tests;
