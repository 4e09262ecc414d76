//! The prototype of a generation: its [process], its start, its death, and whether it [answers](responsiveness). The
//! [output](crate::generation::process_output) of its boot is what the API shows.
//!
//! A prototype that dies is started again after a pause. A prototype whose generation has never forked a worker is not:
//! the failure is the answer to the change that started the generation. A prototype that breaks the protocol, misses a
//! message, or does not answer is killed.

mod process;
mod responsiveness;

pub use process::BootResources;

use crate::os::cgroup::Group;
use crate::os::processes::process::PidClaim;
use crate::os::processes::reap;
use crate::plan::php::application::PhpPlan;
use crate::plan::php::executables::Php;
use crate::policy::pace::{Backoff, BootStep, boot_timeout, heartbeat};
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::messages::prototype::{FromPrototype, ToPrototype};
use process::PrototypeProcess;
use responsiveness::{FORK_TIMEOUT, ProbeStep, Responsiveness};
use rustix::process::Pid;
use std::fmt::Write as _;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

/// The prototype.
#[derive(Debug)]
pub struct Prototype {
    state: PrototypeState,
    backoff: Backoff,
    responsiveness: Responsiveness,
    /// The PHP that it has loaded.
    loaded: Option<LoadedPhp>,
    /// Why the last one could not load PHP.
    failure: Option<String>,
    /// Whether a worker has ever been forked.
    is_proven: bool,
}

#[derive(Debug)]
enum PrototypeState {
    Up(Box<PrototypeProcess>),
    /// To be started at this time.
    Down(Instant),
    /// It has never worked, and is not started again.
    Failed,
    /// It has been asked to exit, and is not started again.
    Ended,
}

/// The PHP that a prototype has loaded.
#[derive(Clone, Debug)]
pub struct LoadedPhp {
    /// PHP's full version.
    pub version: String,
    /// Whether opcache is on.
    pub opcache: bool,
}

/// The meaning of a prototype process's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrototypeDeath {
    /// Nothing: another process has replaced it, or it was asked to exit.
    Expected,
    /// Its workers, in this process group, have no prototype any more.
    OrphansWorkers(Option<Pid>),
}

/// The rule that a prototype broke.
pub type BrokenRule = &'static str;

/// The longest version of a PHP: the first lines and the status show it.
const MAX_VERSION_BYTES: usize = 64;

// === impl Prototype ===

impl Prototype {
    /// A prototype that starts at this time.
    pub fn new(now: Instant) -> Prototype {
        Prototype {
            state: PrototypeState::Down(now),
            backoff: Backoff::default(),
            responsiveness: Responsiveness::new(now),
            loaded: None,
            failure: None,
            is_proven: false,
        }
    }

    /// Whether a worker has ever been forked.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The PHP that it has loaded.
    pub fn loaded(&self) -> Option<&LoadedPhp> {
        self.loaded.as_ref()
    }

    /// Why PHP does not start. `None` while it may still do so.
    pub fn failure(&self) -> Option<&str> {
        match self.state {
            // A process that was killed because it did not start may not exit.
            PrototypeState::Up(ref process) if self.is_proven || !process.boot_timeout.is_over() => None,
            _ => self.failure.as_deref(),
        }
    }

    /// Its process id, while there is a process.
    pub fn pid(&self) -> Option<Pid> {
        self.process().map(|process| process.pid)
    }

    /// Whether it forks workers when it gets the order.
    pub fn can_fork(&self) -> bool {
        self.process().is_some_and(|process| process.is_booted && process.link.is_some())
    }

    /// Whether it is to be started again, later.
    pub fn is_down(&self) -> bool {
        matches!(self.state, PrototypeState::Down(_))
    }

    /// Whether it runs, and has not been asked to exit.
    pub fn is_up(&self) -> bool {
        self.process().is_some_and(|process| process.link.is_some())
    }

    /// Whether it has been asked to exit.
    pub fn is_stopping(&self) -> bool {
        match &self.state {
            PrototypeState::Up(process) => process.link.is_none(),
            PrototypeState::Down(_) | PrototypeState::Failed => false,
            PrototypeState::Ended => true,
        }
    }

    /// Whether it was asked to exit, and has exited.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, PrototypeState::Ended)
    }

    fn process(&self) -> Option<&PrototypeProcess> {
        match &self.state {
            PrototypeState::Up(process) => Some(process),
            _ => None,
        }
    }

    fn process_mut(&mut self) -> Option<&mut PrototypeProcess> {
        match &mut self.state {
            PrototypeState::Up(process) => Some(process),
            _ => None,
        }
    }

    // Its start and its end

    /// Whether it is time to start it.
    pub fn is_start_due(&self, now: Instant) -> bool {
        matches!(self.state, PrototypeState::Down(at) if at <= now)
    }

    /// Starts it. Returns its death if that fails.
    pub fn start(
        &mut self,
        plan: &PhpPlan,
        resources: io::Result<BootResources>,
        now: Instant,
    ) -> Result<(), PrototypeDeath> {
        self.failure = None;
        match resources.and_then(|resources| PrototypeProcess::start(plan, resources, now)) {
            Ok(process) => {
                self.state = PrototypeState::Up(Box::new(process));
                self.responsiveness = Responsiveness::new(now);
                Ok(())
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                Err(self.on_death(ProcessEnd::Code(1), plan, now))
            }
        }
    }

    /// Its process is dead.
    pub fn on_death(&mut self, end: ProcessEnd, plan: &PhpPlan, now: Instant) -> PrototypeDeath {
        let (group, lifetime, had_worked, output) = match &mut self.state {
            PrototypeState::Up(process) => {
                if process.is_succeeded() {
                    return PrototypeDeath::Expected;
                }
                if process.link.is_none() {
                    self.state = PrototypeState::Ended;
                    return PrototypeDeath::Expected;
                }
                (Some(process.group()), now - process.since, process.has_forked, process.output.last_lines())
            }
            PrototypeState::Down(_) | PrototypeState::Failed => Default::default(),
            PrototypeState::Ended => return PrototypeDeath::Expected,
        };
        let reason = self.failure.get_or_insert_with(|| describe_death(&plan.php, end));
        if self.is_proven {
            tracing::error!("the prototype of {:?} is started again: {reason}", plan.name);
        } else if !output.is_empty() {
            reason.push_str(":\n");
            reason.push_str(&output);
        }
        self.state = match self.is_proven {
            true => PrototypeState::Down(now + self.backoff.after_death(lifetime, had_worked)),
            false => PrototypeState::Failed,
        };
        PrototypeDeath::OrphansWorkers(group)
    }

    /// Asks it to exit, by closing its socket.
    pub fn stop(&mut self) {
        match &mut self.state {
            PrototypeState::Up(process) => process.link = None,
            state => *state = PrototypeState::Ended,
        }
    }

    /// Kills it and everything that it forked.
    pub fn kill_group(&self) {
        if let Some(process) = self.process() {
            process.kill_group();
        }
    }

    // Messages

    /// Its next message; `None`, once, when it has closed its socket. Passes on what it writes to standard error.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromPrototype>> {
        let Some(process) = self.process_mut() else { return Poll::Pending };
        process.output.poll(cx);
        process.link.as_mut().map_or(Poll::Pending, |link| link.poll_receive(cx))
    }

    /// A message that is already there.
    pub fn try_receive(&mut self) -> Option<FromPrototype> {
        self.process_mut()?.link.as_mut()?.try_receive()
    }

    /// Whether it has sent something that is no message.
    pub fn is_broken(&self) -> bool {
        self.process().and_then(|process| process.link.as_ref()).is_some_and(|link| link.is_broken())
    }

    /// Sends a message, if it has not been asked to exit.
    pub fn send(&mut self, message: ToPrototype) {
        if let Some(link) = self.process_mut().and_then(|process| process.link.as_mut()) {
            link.send(message, Vec::new());
        }
    }

    /// It has closed its socket, as it does when it exits. If it does not exit, it can receive no message any more.
    pub fn on_close(&mut self, now: Instant) {
        if let Some(process) = self.process_mut() {
            process.kill_at = Some(now + reap::CLOSED_GRACE);
        }
    }

    /// It has loaded PHP.
    ///
    /// # Errors
    /// When it had reported that before, or the version cannot be shown.
    pub fn on_booted(&mut self, loaded: LoadedPhp) -> Result<(), BrokenRule> {
        let version = &loaded.version;
        if version.is_empty()
            || version.len() > MAX_VERSION_BYTES
            || !version.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err("it has loaded a PHP without a valid version");
        }
        match self.process_mut() {
            Some(process) if !process.is_booted => process.is_booted = true,
            _ => return Err("it booted twice"),
        }
        self.loaded = Some(loaded);
        self.failure = None;
        Ok(())
    }

    /// It could not load PHP.
    ///
    /// # Errors
    /// When it had loaded PHP before.
    pub fn on_failed(&mut self, reason: String) -> Result<(), BrokenRule> {
        if self.process().is_some_and(|process| process.is_booted) {
            return Err("it failed to boot after it had booted");
        }
        self.failure = Some(reason);
        Ok(())
    }

    /// It claims that another process replaces it, because the application has a PID namespace.
    ///
    /// # Errors
    /// When that is no process of it.
    pub fn on_moved(&mut self, pid: i32, plan: &PhpPlan) -> Result<(), BrokenRule> {
        let moves = plan.confined.confinement.as_ref().is_some_and(|confinement| confinement.pid);
        match self.process_mut().is_some_and(|process| process.on_moved(pid, moves)) {
            true => Ok(()),
            false => Err("it moved to a process that is not its child"),
        }
    }

    /// It has answered an order to fork.
    pub fn on_fork_answer(&mut self, now: Instant) {
        self.responsiveness.on_fork_answer(now);
    }

    /// It has forked a worker.
    pub fn on_forked(&mut self) {
        self.is_proven = true;
        if let Some(process) = self.process_mut() {
            process.has_forked = true;
        }
    }

    /// It has answered a probe.
    pub fn on_pong(&mut self) {
        self.responsiveness.on_pong();
    }

    /// Which process it means by the pid that it sees.
    pub fn check_claim(&self, pid: i32) -> PidClaim {
        self.process().map_or(PidClaim::Gone, |process| process.check_claim(pid))
    }

    /// It broke the protocol: its messages are ignored from now on, and it is killed.
    pub fn on_breach(&mut self, rule: BrokenRule, application: &str) {
        let Some(process) = self.process_mut() else { return };
        tracing::error!("the prototype of {application:?} broke the rules ({rule}); it is killed");
        if let Some(link) = &mut process.link {
            link.close();
        }
        process.kill();
        self.failure =
            Some(format!("its prototype broke the rules: {rule}; does preloaded code write to descriptor 3?"));
    }

    /// Kills it if a message to it failed. Another one starts.
    pub fn kill_if_send_failed(&mut self, application: &str) {
        let Some(process) = self.process_mut() else { return };
        let Some(Err(error)) = process.link.as_mut().map(|link| link.check()) else { return };
        tracing::error!("a message to the prototype of {application:?} failed ({error}); it is killed");
        process.kill();
    }

    // Warm-up

    /// Forgets its output until now, because a warm-up begins.
    pub fn forget_output(&mut self) {
        if let Some(process) = self.process_mut() {
            process.output.forget();
        }
    }

    /// The last lines that it and its workers wrote to standard error; empty for none.
    pub fn last_output(&mut self) -> String {
        self.process_mut().map(|process| process.output.last_lines()).unwrap_or_default()
    }

    // Time

    /// When [`Self::on_time`] has something to do, or it is to be started. `oldest_order` is the time of the oldest
    /// order to fork that has no answer.
    pub fn next_deadline(&self, oldest_order: Option<Instant>) -> Option<Instant> {
        match &self.state {
            PrototypeState::Down(at) => Some(*at),
            PrototypeState::Up(process) if process.link.is_some() => {
                let check = match process.is_booted && self.is_proven {
                    true => Some(self.responsiveness.deadline(oldest_order)),
                    false => process.boot_timeout.deadline(),
                };
                process.kill_at.into_iter().chain(check).min()
            }
            PrototypeState::Up(_) | PrototypeState::Failed | PrototypeState::Ended => None,
        }
    }

    /// Kills a process that does not exit, does not start, or does not answer.
    pub fn on_time(
        &mut self,
        plan: &PhpPlan,
        oldest_order: Option<Instant>,
        has_dead_worker: impl FnOnce() -> bool,
        now: Instant,
    ) {
        let Some(process) = self.process_mut() else { return };
        if process.kill_at.take_if(|at| *at <= now).is_some() {
            reap::kill(process.pid);
        }
        let Some(link) = &mut process.link else { return };
        link.flush();
        if process.is_booted && self.is_proven {
            self.check_forks(plan, oldest_order, now);
            self.probe(plan, has_dead_worker, now);
        } else {
            self.check_boot(plan, now);
        }
    }

    /// Kills a process that does not load PHP, or forks no worker.
    fn check_boot(&mut self, plan: &PhpPlan, now: Instant) {
        let PrototypeState::Up(process) = &mut self.state else { return };
        match process.boot_timeout.step(now) {
            Some(BootStep::Warn) => {
                tracing::warn!("still waiting for PHP of the application {:?} to start", plan.name);
            }
            Some(BootStep::Fail) => {
                let seconds = boot_timeout::timeout().as_secs();
                let preboots = plan.pools.iter().any(|pool| pool.script.as_ref().is_some_and(|script| script.preboot));
                let suspect = match preboots {
                    true => "its worker script hang before it asks for a request",
                    false => "its opcache.preload hang",
                };
                self.failure = Some(format!("it took more than {seconds} s; does {suspect}?"));
                process.kill_group();
            }
            Some(BootStep::GiveUp) if !self.is_proven => {
                let pid = process.pid.as_raw_pid();
                let reason = self.failure.get_or_insert_with(|| "it does not start".to_owned());
                let _ = write!(
                    reason,
                    "; its prototype (pid {pid}) was killed and has not exited: does a file system hang?"
                );
            }
            Some(BootStep::GiveUp) | None => {}
        }
    }

    fn check_forks(&mut self, plan: &PhpPlan, oldest_order: Option<Instant>, now: Instant) {
        if self.responsiveness.is_fork_late(oldest_order, now)
            && let Some(process) = self.process()
        {
            let (name, seconds) = (&plan.name, FORK_TIMEOUT.as_secs());
            tracing::error!("the prototype of {name:?} has not forked a worker within {seconds} s; it is killed");
            process.kill();
        }
    }

    fn probe(&mut self, plan: &PhpPlan, has_dead_worker: impl FnOnce() -> bool, now: Instant) {
        let PrototypeState::Up(process) = &self.state else { return };
        let is_stopped = || plan.confined.cgroup.as_ref().is_some_and(Group::is_frozen) || process.is_stopped();
        let name = &plan.name;
        match self.responsiveness.probe(is_stopped, has_dead_worker, now) {
            ProbeStep::Wait => {}
            ProbeStep::Probe => self.send(ToPrototype::Ping),
            ProbeStep::Lost => {
                let seconds = heartbeat::timeout().as_secs();
                tracing::error!("the prototype of {name:?} has not answered for {seconds} s; it is killed");
                process.kill();
            }
            ProbeStep::UnreportedDeath => {
                tracing::error!(
                    "the prototype of {name:?} is stopped, and does not report that a worker has died; it is killed"
                );
                process.kill();
            }
        }
    }
}

fn describe_death(php: &Php, end: ProcessEnd) -> String {
    match end {
        // The dynamic linker's exit code. Its message on standard error names the library that is missing.
        ProcessEnd::Code(127) => {
            format!("PHP {} is not installed; install it with `apt install {}`", php.version, php.package())
        }
        _ => format!("its process {end}"),
    }
}
