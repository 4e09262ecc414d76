//! A generation of a PHP application: a prototype, its workers, and the channel that they share with the router.
//!
//! [`PhpGeneration`] owns the parts and passes events from one to the other. Each part owns its state:
//!
//! - [`prototype`]: its process, its start, its death, and whether it answers
//! - [`worker_set`]: the workers, the channel, and the workers' deaths
//! - [`boots`]: in worker mode, from the fork of a worker until it is ready
//! - [`scaling`]: how many workers there are, from which are idle and, with `auto`, what they use
//! - [`overdue`]: requests that take too long; [`stopped_processes`]: those that a signal has stopped
//! - [`recording`]: where the time goes, and which memory is kept
//! - [`worker_report`]: what the API shows of a worker
//!
//! When a worker dies, [`policy::workers`](crate::policy::workers) decides when the next one starts, and the prototype
//! forks it on order. A prototype that dies is started again by the supervisor, on the same channel. Its workers become children of the supervisor, finish their requests and exit. A generation that never
//! forked a worker does not start again: it reports its failure.

mod boots;
mod overdue;
pub mod prototype;
pub mod recording;
mod scaling;
mod stopped_processes;
mod worker_report;
mod worker_set;

use crate::generation::process_report::{CpuShares, ProcessReport, ReportedState};
use crate::generation::tally::ProcessTally;
use crate::os::files::memory_file::memory_file;
use crate::os::files::slow_log::SlowLogFile;
use crate::os::identity::UserAccount;
use crate::os::processes::process::{PidClaim, Process};
use crate::plan::php::Php;
use crate::plan::php_application::{PhpPlan, Release};
use crate::policy::sizing::Reason;
use crate::policy::workers::Workers;
use boots::Boots;
use howdah_channel::{ControlEnd, Geometry, WorkerId};
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::prototype::{FromPrototype, ToPrototype};
use howdah_protocol::messages::router::{GenerationBoot, ToRouter};
use overdue::OverdueRequests;
use prototype::{BootResources, BrokenRule, LoadedPhp, Prototype, PrototypeDeath};
use recording::{Recorder, RecordingOutcome, Subject};
use rustix::event::EventfdFlags;
use rustix::process::Pid;
use scaling::Scaling;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use stopped_processes::StoppedProcesses;
use tokio::sync::oneshot;

use worker_set::{WorkerExit, WorkerSet};

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
    workers: WorkerSet,
    scaling: Scaling,
    overdue: OverdueRequests,
    stopped: StoppedProcesses,
    recorder: Recorder,
    cpu_shares: CpuShares,
    /// Another generation serves the application: this one finishes the requests that it has.
    is_former: bool,
    /// When to check the length of the slow log.
    slow_log_at: Option<Instant>,
    /// It was asked to exit: what still runs then is killed.
    kill_at: Option<Instant>,
}

/// How many messages of a dead prototype are read. A socket holds fewer, unless another process still sends.
const MAX_PENDING: usize = 4096;
/// How often the length of the slow log is checked.
const SLOW_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long scripts may go on after the router has released their generation: no client waits for them then.
const SCRIPT_GRACE: Duration = Duration::from_secs(60);

// === impl PhpGeneration ===

impl PhpGeneration {
    /// Makes the channel. Nothing runs yet.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn new(id: u64, plan: PhpPlan, router_threads: u16, now: Instant) -> io::Result<PhpGeneration> {
        let geometry = Geometry::for_workers(plan.pool.max() as u32, plan.claims(), router_threads);
        let bell = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let table = Workers::new(plan.pool.at_start() as u32).at_most(plan.pool.max());
        let script = plan.worker_script.as_ref().map(|script| script.filename.display().to_string());
        let boots = Boots::new(plan.name.clone(), script, plan.confined.machine().cores());
        Ok(PhpGeneration {
            id,
            born: now,
            workers: WorkerSet::new(id, plan.name.clone(), table, ControlEnd::create(geometry)?, boots),
            bells: (0..geometry.threads).map(bell).collect::<Result<_, _>>()?,
            prototype: Prototype::new(now),
            scaling: Scaling::new(&plan, now),
            overdue: OverdueRequests::new(plan.limits.timeout, plan.name.clone()),
            stopped: StoppedProcesses::new(now),
            recorder: Recorder::new()?,
            cpu_shares: CpuShares::default(),
            is_former: false,
            slow_log_at: None,
            kill_at: None,
            plan,
        })
    }

    // Properties

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
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
        self.prototype.is_proven() && self.workers.boots.is_proven()
    }

    /// Why PHP or the worker script does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        self.prototype.failure().or(self.workers.boots.failure())
    }

    /// How many workers there should be.
    pub fn processes(&self) -> usize {
        self.workers.table.target()
    }

    /// How many of its workers run, and how many are being started.
    pub fn process_counts(&self) -> (usize, usize) {
        let (running, starting) = self.workers.table.counts();
        let booting = self.workers.count_booting();
        (running.saturating_sub(booting), starting + booting)
    }

    /// Why there are as many workers as there are, with `"processes": "auto"`.
    pub fn reason(&self) -> Option<Reason> {
        self.scaling.reason(&self.workers, Instant::now())
    }

    /// How much memory its new workers will take, in bytes: the kernel does not count it yet.
    pub fn promised(&self, now: Instant) -> u64 {
        self.scaling.promised(&self.workers, now)
    }

    /// A report of each worker. All of them are leaving if the generation drains.
    pub fn process_reports(&mut self, drains: bool, now: Instant) -> Vec<ProcessReport> {
        let workers: Vec<_> = self.workers.table.alive().collect();
        let lives = |pid| workers.iter().any(|(_, process)| process.is_some_and(|it| it.pid.as_raw_pid() == pid));
        self.cpu_shares.retain(lives);
        let report = |(worker, process)| {
            let is_leaving = drains || self.workers.table.is_leaving(worker);
            worker_report::of(&self.workers.control, worker, process, is_leaving, &mut self.cpu_shares, now)
        };
        workers.into_iter().map(report).collect()
    }

    /// The state of each worker, without a look at /proc. All of them are leaving if the generation drains.
    pub fn process_states(&self, drains: bool) -> Vec<ReportedState> {
        let state = |(worker, process)| {
            let is_leaving = drains || self.workers.table.is_leaving(worker);
            worker_report::state(&self.workers.control, worker, process, is_leaving)
        };
        self.workers.table.alive().map(state).collect()
    }

    /// How much memory its workers have for themselves, in bytes.
    pub fn private_bytes(&self) -> u64 {
        self.workers.table.alive().filter_map(|(_, process)| process?.private_bytes()).sum()
    }

    /// The numbers of its workers.
    pub fn tally(&self) -> ProcessTally {
        let mut tally = self.workers.tally;
        self.workers.ids().filter_map(|worker| self.workers.control.account(worker)).for_each(|account| {
            tally.add_account(account);
        });
        tally
    }

    // The router

    /// The messages that describe it to a router, with their descriptors.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for them.
    pub fn for_router(&self) -> io::Result<Vec<(ToRouter, Vec<OwnedFd>)>> {
        let [_, log] = self.plan.outputs.files()?;
        let boot = GenerationBoot {
            id: self.id,
            application: self.plan.name.clone(),
            geometry: self.workers.control.geometry(),
            spare_workers: self.plan.pool.spare().map(|spare| spare as u32),
            timeout_ms: self.plan.limits.timeout.map(|timeout| timeout.as_millis() as u64),
            queue_timeout_ms: self.plan.limits.queue_timeout.as_millis() as u64,
            server_software: self.plan.environment.variables.get("SERVER_SOFTWARE").cloned(),
            has_log: log.is_some(),
        };
        let mut descriptors = self.channel()?;
        // In a file, because the paths may be long.
        descriptors.insert(1, memory_file(&serde_json::to_vec(&self.plan.release.paths)?)?);
        descriptors.extend(log.map(OwnedFd::from));
        let started = |worker| (ToRouter::WorkerStarted { generation: self.id, worker }, Vec::new());
        let first = (ToRouter::AddGeneration(boot), descriptors);
        Ok(std::iter::once(first).chain(self.workers.ids().map(started)).collect())
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
        self.workers.take_notices()
    }

    /// The router found too few idle workers for the requests that wait. `promised` is the memory that new workers of
    /// other applications will take, in bytes.
    pub fn on_workers_wanted(&mut self, waiting: u64, promised: u64, now: Instant) {
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        self.scaling.on_workers_wanted(waiting, promised, &mut self.workers, now);
        self.on_time(now);
    }

    /// The router reports that a worker takes longer for this request than `limits/timeout` allows.
    pub fn on_overdue(&mut self, worker: WorkerId, request: (u16, u32), now: Instant) {
        self.overdue.on_report(worker, request, &self.workers, now);
    }

    /// A worker broke the channel's rules: all workers are replaced.
    pub fn replace_workers(&mut self, now: Instant) {
        self.workers.replace_all(now);
        self.on_time(now);
    }

    /// Another generation serves its application: most idle workers are retired.
    pub fn on_former(&mut self, now: Instant) {
        self.is_former = true;
        self.scaling.on_former(&mut self.workers, now);
    }

    // The API

    /// The time until the running recording ends; `None` if none is running.
    pub fn recording_time_left(&self, now: Instant) -> Option<Duration> {
        self.recorder.time_left(now)
    }

    /// Whether its workers run a worker script.
    pub fn has_worker_script(&self) -> bool {
        self.plan.worker_script.is_some()
    }

    /// Whether its workers run several requests at a time.
    pub fn is_async(&self) -> bool {
        self.plan.claims() > 1
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
        self.recorder.begin(&self.workers.control, self.workers.ids(), subject, duration, now)
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

    /// The prototype has closed its socket.
    pub fn on_close(&mut self, now: Instant) {
        self.prototype.on_close(now);
    }

    /// A message of the prototype. Code of the application may run in it, so it may send anything: one that breaks the
    /// protocol is killed.
    pub fn on_message(&mut self, message: FromPrototype, now: Instant) {
        let handled = match message {
            FromPrototype::Booted { php_version, opcache } => {
                let booted = self.prototype.on_booted(LoadedPhp { version: php_version, opcache });
                if self.plan.worker_script.is_some() {
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
            FromPrototype::WorkerNotForked { worker } => match self.workers.on_not_forked(worker, now) {
                true => {
                    self.prototype.on_fork_answer(now);
                    Ok(())
                }
                false => Err("it reported a fork that failed without an order"),
            },
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

    fn on_worker_started(&mut self, worker: WorkerId, pid: i32, now: Instant) -> Result<(), BrokenRule> {
        self.prototype.on_fork_answer(now);
        let process = match self.prototype.check_claim(pid) {
            PidClaim::Valid(process) => Some(process),
            PidClaim::Gone => None,
            PidClaim::Invalid => return Err("it reported a pid that is not its child"),
        };
        if !self.workers.on_started(worker, process) {
            return Err("it started a worker without an order");
        }
        self.prototype.on_forked();
        Ok(())
    }

    fn on_worker_exited(
        &mut self,
        worker: WorkerId,
        pid: i32,
        end: ProcessEnd,
        now: Instant,
    ) -> Result<(), BrokenRule> {
        let known = self.workers.table.alive().find(|(alive, _)| *alive == worker);
        match known {
            None => Err("it reported the death of a worker that does not live"),
            // The prototype reaps a worker before it reports its death. A worker that still runs would answer a request
            // that is given up.
            Some((_, Some(process))) if process.exists() => Err("it reported a live worker as dead"),
            Some(_) => {
                self.on_worker_exit(worker, pid, end, now);
                Ok(())
            }
        }
    }

    fn on_worker_exit(&mut self, worker: WorkerId, pid: i32, end: ProcessEnd, now: Instant) {
        let exit = WorkerExit {
            end,
            is_stopping: self.prototype.is_stopping(),
            was_overdue: self.overdue.has(worker),
            may_exit: self.plan.limits.requests.is_some()
                || self.plan.limits.memory.is_some()
                || self.plan.worker_script.is_some(),
        };
        self.workers.on_exit(worker, pid, exit, || self.prototype.last_output(), now);
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
        } else if let Some(worker) = self.workers.table.with_pid(dead) {
            self.on_worker_exit(worker, dead.as_raw_pid(), end, now);
            self.on_time(now);
        } else {
            return false;
        }
        true
    }

    fn on_prototype_death(&mut self, death: PrototypeDeath, now: Instant) {
        match death {
            PrototypeDeath::Expected => {}
            PrototypeDeath::OrphansWorkers(group) => self.workers.orphan_all(group, now),
        }
    }

    /// Counts workers of a dead prototype as dead once no process can be one of them.
    pub fn settle_orphans(&mut self, now: Instant) {
        self.workers.settle_orphans(now);
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (can_fork, is_down) = (self.prototype.can_fork(), self.prototype.is_down());
        let has_prototype = self.prototype.is_up() || is_down;
        let workers = self.workers.next_deadline(can_fork || is_down).filter(|_| has_prototype);
        let deadlines = [
            self.prototype.next_deadline(self.workers.table.oldest_fork_order()),
            workers,
            self.scaling.next_deadline().filter(|_| can_fork),
            self.overdue.next_deadline(),
            self.workers.boots.next_deadline(),
            Some(self.stopped.deadline()).filter(|_| self.prototype.is_up()),
            self.recorder.next_deadline(),
            self.slow_log_at.filter(|_| !self.is_former),
            self.kill_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due: starts a prototype, orders workers, kills processes that should have exited.
    pub fn on_time(&mut self, now: Instant) {
        if self.prototype.is_start_due(now) {
            self.start_prototype(now);
        }
        self.kill_lingering(now);
        let (workers, oldest_order) = (&self.workers, self.workers.table.oldest_fork_order());
        self.prototype.on_time(&self.plan, oldest_order, || workers.has_dead(), now);
        self.overdue.on_time(&self.workers, now);
        self.warn_of_stopped(now);
        self.recorder.on_time(&self.workers.control, self.workers.ids(), now);
        self.rotate_slow_log(now);
        self.workers.kill_expired_orphans(now);
        self.workers.look_at_boots(now);
        if self.is_proven() {
            self.scaling.on_proven();
        }
        if self.prototype.can_fork() {
            self.scaling.on_time(&mut self.workers, now);
            for worker in self.workers.start_due(now) {
                self.prototype.send(ToPrototype::StartWorker(worker));
            }
        }
    }

    /// Logs the processes that a signal has stopped.
    fn warn_of_stopped(&mut self, now: Instant) {
        if self.stopped.deadline() > now {
            return;
        }
        let prototype = self.prototype.pid().and_then(Process::find);
        let workers = self.workers.table.alive().filter_map(|(_, process)| process);
        let stopped = prototype.into_iter().chain(workers).filter(|process| process.is_stopped_by_signal()).collect();
        for process in self.stopped.look(stopped, now) {
            let is_prototype = prototype == Some(process);
            let (kind, effect) = match is_prototype {
                true => ("prototype", "no worker can be started"),
                false => ("worker", "its request waits"),
            };
            let (name, pid) = (&self.plan.name, process.pid.as_raw_pid());
            tracing::warn!(
                "the {kind} of {name:?} (pid {pid}) is stopped by a signal, and {effect}: kill -CONT {pid} continues it"
            );
        }
    }

    fn start_prototype(&mut self, now: Instant) {
        let resources = self.boot_resources();
        match self.prototype.start(&self.plan, resources, now) {
            Ok(()) => self.overdue.begin(now),
            Err(death) => self.on_prototype_death(death, now),
        }
    }

    fn boot_resources(&self) -> io::Result<BootResources> {
        Ok(BootResources {
            geometry: self.workers.control.geometry(),
            channel: self.channel()?,
            samples: self.recorder.file()?,
            // A generation that has run goes on running if a script is missing for a moment.
            checks_paths: !self.prototype.is_proven(),
        })
    }

    /// The channel's memory, and its eventfds.
    fn channel(&self) -> io::Result<Vec<OwnedFd>> {
        let memory = self.workers.control.memfd().try_clone_to_owned();
        std::iter::once(memory).chain(self.bells.iter().map(OwnedFd::try_clone)).collect()
    }

    fn rotate_slow_log(&mut self, now: Instant) {
        if let Some(log) = &self.plan.slow_log
            && !self.is_former
            && self.slow_log_at.is_none_or(|at| at <= now)
        {
            self.slow_log_at = Some(now + SLOW_LOG_INTERVAL);
            log.rotate_if_long();
        }
    }

    // Its end

    /// Asks all processes to finish what they do and exit. The router has released the generation, so no client waits:
    /// only scripts still run that go on after their answer, or after their client has left.
    pub fn stop(&mut self, now: Instant) {
        self.kill_at.get_or_insert(now + SCRIPT_GRACE);
        self.recorder.abort(&self.workers.control, self.workers.ids());
        self.workers.control.stop_all();
        self.prototype.stop();
    }

    /// Kills all processes.
    pub fn kill(&mut self) {
        self.stop(Instant::now());
        self.kill_at = None;
        self.kill_all();
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        self.prototype.is_ended() && self.workers.are_over()
    }

    /// Kills processes that did not exit in time.
    fn kill_lingering(&mut self, now: Instant) {
        if self.kill_at.take_if(|at| *at <= now).is_some() {
            tracing::warn!(
                "killing scripts of a drained generation of {:?}, {} s after the router released it",
                self.plan.name,
                SCRIPT_GRACE.as_secs()
            );
            self.kill_all();
        }
    }

    fn kill_all(&self) {
        self.prototype.kill_group();
        self.workers.kill_all();
    }
}

#[cfg(test)]
mod tests;
