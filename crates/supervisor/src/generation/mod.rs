//! One application with one configuration: a prototype, its workers, and the channel that they share with the router.
//!
//! A worker that dies is started again by the prototype. A prototype that dies is started again by us, on the same
//! channel; its workers, which are our children then, finish what they do and go. What the router must know about it
//! is left in [`Generation::notices`].

mod automatic;
mod birth;
pub mod boot_output;
mod deaths;
mod elastic;
mod end;
pub mod gauge;
pub mod generations;
mod overdue;
pub mod profile;
mod release;
mod silence;
pub mod worker_report;

use crate::generation::boot_output::BootOutput;
use crate::os::link::ChildLink;
use crate::os::process::PidClaim;
use crate::os::reap;
use crate::os::slow_log::SlowLog;
use crate::plan::application::Plan;
use crate::plan::php::Php;
use crate::policy::pace::{Backoff, BootStep, BootTimeout, boot_timeout};
use crate::policy::workers::Workers;
use automatic::Automatic;
use elastic::Idle;
use howdah_channel::{ControlEnd, Geometry, WorkerId};
use howdah_protocol::process_end::ProcessEnd;
use howdah_protocol::prototype_messages::{FromPrototype, ToPrototype};
use howdah_protocol::router_messages::{GenerationBoot, ToRouter};
use overdue::Overdue;
use profile::{ProfileOutcome, Profiler};
use rustix::event::EventfdFlags;
use rustix::process::Pid;
use silence::Silence;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use worker_report::{CpuShares, WorkerReport};

/// What a prototype said of the PHP that it loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// PHP's full version.
    pub version: String,
    /// Whether opcache is on.
    pub opcache: bool,
}

/// A running application.
#[derive(Debug)]
pub struct Generation {
    id: u64,
    plan: Plan,
    control: ControlEnd,
    /// One eventfd for each router thread.
    bells: Vec<OwnedFd>,
    prototype: Prototype,
    backoff: Backoff,
    workers: Workers,
    idle: Idle,
    /// If the number of workers is found by itself.
    automatic: Option<Automatic>,
    overdue: Overdue,
    profiler: Profiler,
    silence: Silence,
    /// Another one serves its application: what is left to it are the requests under way.
    is_former: bool,
    /// When the slow log is looked at again.
    slow_log_at: Option<Instant>,
    cpu_shares: CpuShares,
    loaded: Option<Loaded>,
    /// Why the last prototype could not load PHP.
    failure: Option<String>,
    /// The process groups of dead prototypes of which a worker may live whose process is not known.
    nameless: Vec<Pid>,
    /// A worker broke the channel's rules: none is started before all are dead.
    replacing: bool,
    /// Whether a worker has been forked ever.
    proven: bool,
    /// When it was made.
    born: Instant,
    /// It was asked to end: what still runs then is killed.
    kill_at: Option<Instant>,
    /// What the router has not been told yet.
    pub notices: Vec<ToRouter>,
}

#[derive(Debug)]
enum Prototype {
    Up {
        pid: Pid,
        /// Its process group.
        group: Pid,
        /// The process that goes on in its place, when it has exited.
        successor: Option<Pid>,
        since: Instant,
        booted: bool,
        /// It has forked a worker.
        has_forked: bool,
        /// While it starts.
        boot_timeout: BootTimeout,
        /// What it says on standard error while it starts.
        said: BootOutput,
        /// It has closed its socket: it must be gone by then.
        kill_at: Option<Instant>,
        /// `None` when it has been asked to end.
        link: Option<ChildLink<ToPrototype, FromPrototype>>,
    },
    /// To be started then.
    Down { again: Instant },
    /// It has never worked, and is not tried again: the failure is an answer that somebody waits for.
    Failed,
    /// Not to be started any more.
    Ended,
}

/// More messages than fit into a socket were not there already: somebody sends while they are read.
const PENDING_AT_MOST: usize = 4096;
/// How often the length of the slow log is looked at.
const SLOW_LOG_PAUSE: Duration = Duration::from_secs(60);

// === impl Generation ===

impl Generation {
    /// Makes the channel. Nothing runs yet.
    pub fn new(id: u64, plan: Plan, threads: u16, now: Instant) -> io::Result<Generation> {
        let geometry = Geometry::for_workers(plan.pool.max() as u32, threads);
        let bell = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Generation {
            id,
            control: ControlEnd::create(geometry)?,
            bells: (0..geometry.threads).map(bell).collect::<Result<_, _>>()?,
            workers: Workers::new(plan.pool.at_start() as u32).at_most(plan.pool.max()),
            idle: Idle { look_at: plan.pool.spare().map(|_| now), ..Idle::default() },
            automatic: Automatic::of(&plan, now),
            overdue: Overdue::default(),
            profiler: Profiler::new()?,
            silence: Silence::begin(now),
            is_former: false,
            slow_log_at: None,
            cpu_shares: CpuShares::default(),
            prototype: Prototype::Down { again: now },
            backoff: Backoff::default(),
            loaded: None,
            failure: None,
            nameless: Vec::new(),
            replacing: false,
            proven: false,
            born: now,
            kill_at: None,
            notices: Vec::new(),
            plan,
        })
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The PHP that runs it.
    pub fn php(&self) -> &Php {
        &self.plan.php
    }

    /// Its application's name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// How many workers it shall have.
    pub fn processes(&self) -> usize {
        self.workers.target()
    }

    /// How many of its workers run, and how many are being started.
    pub fn process_counts(&self) -> (usize, usize) {
        self.workers.counts()
    }

    /// Where its slow requests are written down.
    pub fn slow_log(&self) -> Option<&SlowLog> {
        self.plan.slow_log.as_ref()
    }

    /// The PHP that it runs on, once it is loaded.
    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_ref()
    }

    /// Whether it has been seen to work: PHP is loaded and a worker was forked.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// What a router needs to know, with the descriptors of it.
    pub fn for_router(&self) -> io::Result<(GenerationBoot, Vec<OwnedFd>)> {
        let boot = GenerationBoot {
            id: self.id,
            application: self.plan.name.clone(),
            geometry: self.control.geometry(),
            spare_workers: self.plan.pool.spare().map(|spare| spare as u32),
            timeout_ms: self.plan.limits.timeout.map(|timeout| timeout.as_millis() as u64),
            queue_timeout_ms: self.plan.limits.queue_timeout.as_millis() as u64,
        };
        let mut descriptors = self.descriptors()?;
        descriptors.insert(1, self.paths()?);
        Ok((boot, descriptors))
    }

    /// The workers that a router must know.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> {
        self.workers.alive().map(|(worker, _)| worker)
    }

    /// What each worker does. They are leaving if the generation drains.
    pub fn worker_reports(&mut self, drains: bool, now: Instant) -> Vec<WorkerReport> {
        let workers: Vec<_> = self.workers.alive().collect();
        self.cpu_shares.retain(&workers);
        let report = |(worker, process)| {
            let is_leaving = drains || self.workers.is_leaving(worker);
            WorkerReport::new(&self.control, worker, process, is_leaving, &mut self.cpu_shares, now)
        };
        workers.into_iter().map(report).collect()
    }

    /// The time until the running profile ends; `None` if none is running.
    pub fn profile_time_left(&self, now: Instant) -> Option<Duration> {
        self.profiler.time_left(now)
    }

    /// Begins a profile. A running profile is replaced: see [`Self::profile_time_left`].
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn begin_profile(
        &mut self,
        duration: Duration,
        rate: u32,
        now: Instant,
    ) -> io::Result<oneshot::Receiver<ProfileOutcome>> {
        let workers = self.workers.alive().map(|(worker, _)| worker);
        self.profiler.begin(&self.control, workers, duration, rate, now)
    }

    /// Does what is due: starts a prototype, starts workers, kills those that should have left.
    pub fn on_time(&mut self, now: Instant) {
        if matches!(self.prototype, Prototype::Down { again } if again <= now)
            && let Err(error) = self.start_prototype(now)
        {
            self.failure = Some(error.to_string());
            self.prototype_died(ProcessEnd::Code(1), now);
        }
        if let Prototype::Up { pid, kill_at, .. } = &mut self.prototype
            && kill_at.take_if(|at| *at <= now).is_some()
        {
            reap::kill(*pid);
        }
        if let Prototype::Up { link: Some(link), .. } = &mut self.prototype {
            link.flush();
        }
        self.kill_lingering(now);
        self.wait_for_start(now);
        self.look_at_silence(now);
        self.look_at_overdue(now);
        self.profiler.on_time(&self.control, self.workers.alive().map(|(worker, _)| worker), now);
        self.look_at_slow_log(now);
        for (_, process) in self.workers.overdue(now) {
            match process {
                Some(process) => process.kill(),
                None => self.kill_nameless(now),
            }
        }
        if !matches!(self.prototype, Prototype::Up { booted: true, link: Some(_), .. }) {
            return;
        }
        self.look_at_idle(now);
        let Prototype::Up { booted: true, link: Some(link), .. } = &mut self.prototype else {
            return;
        };
        if !self.replacing {
            for worker in self.workers.start_due(now) {
                self.notices.push(ToRouter::WorkerStarted { generation: self.id, worker });
                link.send(ToPrototype::StartWorker(worker), Vec::new());
            }
        }
    }

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let slow_log_at = self.slow_log_at.filter(|_| !self.is_former);
        let watches =
            self.overdue.next_deadline().into_iter().chain(self.profiler.next_deadline()).chain(slow_log_at).min();
        let next = match self.prototype {
            Prototype::Down { again } => {
                Some(again).into_iter().chain(self.workers.next_deadline()).chain(watches).min()
            }
            Prototype::Up { kill_at, booted, boot_timeout, link: Some(_), .. } => {
                let workers =
                    if self.replacing || !booted { self.workers.next_overdue() } else { self.workers.next_deadline() };
                let start = match booted && self.proven {
                    true => self.silence_deadline(),
                    false => boot_timeout.deadline(),
                };
                let look = self.idle.look_at.filter(|_| booted);
                kill_at.into_iter().chain(workers).chain(start).chain(look).chain(watches).min()
            }
            _ => watches,
        };
        next.into_iter().chain(self.kill_at).min()
    }

    /// The next message of the prototype; `None`, once, when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromPrototype>> {
        let Prototype::Up { link, said, .. } = &mut self.prototype else { return Poll::Pending };
        said.poll(cx);
        link.as_mut().map_or(Poll::Pending, |link| link.poll_receive(cx))
    }

    /// Takes in all messages that are there already: before a death is looked at, which they may explain.
    pub fn receive_pending(&mut self, now: Instant) {
        for _ in 0..PENDING_AT_MOST {
            let Prototype::Up { link: Some(link), .. } = &mut self.prototype else { return };
            let Some(message) = link.try_receive() else { return };
            self.on_message(message, now);
        }
    }

    /// The prototype said something.
    pub fn on_message(&mut self, message: FromPrototype, now: Instant) {
        match message {
            FromPrototype::Booted { php_version, opcache } => {
                match &mut self.prototype {
                    Prototype::Up { booted, .. } if !*booted => *booted = true,
                    _ => return self.breach("it booted twice"),
                }
                if !opcache {
                    tracing::warn!(
                        "the application {:?} runs without opcache, several times slower; is it installed, and \
                         opcache.enable on?",
                        self.plan.name
                    );
                }
                self.loaded = Some(Loaded { version: php_version, opcache });
                self.failure = None;
                self.on_time(now);
            }
            FromPrototype::Failed { reason } => match self.prototype {
                Prototype::Up { booted: true, .. } => self.breach("it failed to boot after it had booted"),
                _ => self.failure = Some(reason),
            },
            FromPrototype::Moved { pid } => self.prototype_moved(pid),
            FromPrototype::WorkerStarted { worker, pid } => {
                self.silence.fork_answered(now);
                self.worker_started(worker, pid);
            }
            FromPrototype::WorkerNotForked { worker } => {
                if !self.workers.not_forked(worker, now) {
                    return self.breach("it could not fork a worker that nobody asked for");
                }
                self.silence.fork_answered(now);
                self.forget_worker(worker, None, now);
            }
            FromPrototype::Pong => self.silence.is_there(),
            FromPrototype::WorkerExited { worker, pid, end } => {
                let known = self.workers.alive().find(|(alive, _)| *alive == worker);
                match known {
                    None => return self.breach("it told the death of a worker that does not live"),
                    // It is reaped before it is told. One that still runs would answer a request that is given up.
                    Some((_, Some(process))) if process.exists() => {
                        return self.breach("it told the death of a worker that lives");
                    }
                    Some(_) => {}
                }
                self.worker_ended(worker, pid, end, now);
            }
        }
    }

    /// The prototype has closed its socket, as it does when it ends. If it does not, nobody can tell it anything.
    pub fn on_close(&mut self, now: Instant) {
        if let Prototype::Up { kill_at, .. } = &mut self.prototype {
            *kill_at = Some(now + reap::CLOSED_GRACE);
        }
    }

    /// Whether this is the process of the prototype.
    pub fn is_prototype(&self, wanted: Pid) -> bool {
        matches!(self.prototype, Prototype::Up { pid, .. } if pid == wanted)
    }

    /// A prototype that could not be told something is killed, and another one started.
    pub fn replace_uninformed_prototype(&mut self) {
        let Prototype::Up { link: Some(link), .. } = &mut self.prototype else { return };
        let Err(error) = link.check() else { return };
        tracing::error!("the prototype of {:?} does not know what it should ({error}); it is killed", self.plan.name);
        self.kill_prototype();
    }

    /// Its workers finish what they do. One that moves to another process is two.
    fn kill_prototype(&self) {
        match self.prototype {
            Prototype::Up { pid, group, successor: Some(_), .. } => reap::kill_group(pid, group),
            Prototype::Up { pid, .. } => reap::kill(pid),
            Prototype::Down { .. } | Prototype::Ended | Prototype::Failed => {}
        }
    }

    /// Why PHP does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        match self.prototype {
            Prototype::Up { .. } => None,
            _ => self.failure.as_deref(),
        }
    }

    /// Logs a warning about a prototype that loads no PHP, or forks no worker, for long. Kills it after the timeout.
    fn wait_for_start(&mut self, now: Instant) {
        let Prototype::Up { pid, group, booted, boot_timeout, link: Some(_), .. } = &mut self.prototype else { return };
        if *booted && self.proven {
            return;
        }
        match boot_timeout.step(now) {
            Some(BootStep::Warn) => {
                tracing::warn!("still waiting for PHP of the application {:?} to start", self.plan.name);
            }
            Some(BootStep::Fail) => {
                self.failure = Some(format!(
                    "it took more than {} s; does its opcache.preload hang?",
                    boot_timeout::timeout().as_secs()
                ));
                reap::kill_group(*pid, *group);
            }
            None => {}
        }
    }

    fn look_at_slow_log(&mut self, now: Instant) {
        if let Some(log) = &self.plan.slow_log
            && !self.is_former
            && self.slow_log_at.is_none_or(|at| at <= now)
        {
            self.slow_log_at = Some(now + SLOW_LOG_PAUSE);
            log.rotate_if_long();
        }
    }

    fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let memory = self.control.memfd().try_clone_to_owned();
        std::iter::once(memory).chain(self.bells.iter().map(OwnedFd::try_clone)).collect()
    }

    /// The prototype says that it has forked this worker. Code of the application runs in it, so it may say anything.
    fn worker_started(&mut self, worker: WorkerId, pid: i32) {
        let process = match self.check_claim(pid) {
            PidClaim::Valid(process) => Some(process),
            PidClaim::Gone => None,
            PidClaim::Invalid => return self.breach("it called a process its worker that is none"),
        };
        if !self.workers.started(worker, process) {
            return self.breach("it started a worker that nobody asked for");
        }
        self.proven = true;
        if let Prototype::Up { has_forked, .. } = &mut self.prototype {
            *has_forked = true;
        }
        if let Some(process) = process.filter(|_| self.replacing) {
            process.kill();
        }
    }

    /// The prototype broke the rules: it is not listened to any more, and replaced.
    fn breach(&mut self, rule: &str) {
        let Prototype::Up { link, .. } = &mut self.prototype else { return };
        tracing::error!("the prototype of {:?} broke the rules ({rule}); it is killed", self.plan.name);
        self.failure =
            Some(format!("its prototype broke the rules: {rule}; does preloaded code write to descriptor 3?"));
        if let Some(link) = link {
            link.close();
        }
        self.kill_prototype();
    }
}

#[cfg(test)]
mod tests;
