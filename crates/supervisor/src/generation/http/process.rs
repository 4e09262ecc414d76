//! One process of an HTTP application: its start, its checks, its death and its end.
//!
//! It is ready when its address accepts a connection, and when `health_check` passes if that is set. A process that dies
//! is started again after a pause, and so is one that fails its checks. A process of a generation that was never ready is
//! not: the failure is the answer to the change that started the generation.
//!
//! Its output is copied at a limited rate: a process that floods its log waits, as for any pipe.

use crate::generation::http::addresses::ProcessAddress;
use crate::generation::http::probe::Probe;
use crate::generation::process_output::ProcessOutput;
use crate::os::processes::launch::{self, LaunchResources};
use crate::os::processes::process::Process;
use crate::os::processes::reap;
use crate::os::resources;
use crate::plan::http_application::HttpPlan;
use crate::policy::pace::{Backoff, BootStep, BootTimeout, boot_timeout};
use howdah_protocol::messages::launch::LaunchOrder;
use howdah_protocol::messages::process_end::ProcessEnd;
use howdah_protocol::test_time::divided;
use rustix::process::Pid;
use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A process, through all its restarts.
#[derive(Debug)]
pub struct HttpProcess {
    /// Its index in the generation.
    index: u16,
    address: ProcessAddress,
    state: ProcessState,
    backoff: Backoff,
    /// Whether it has ever been ready.
    is_proven: bool,
}

#[derive(Debug)]
enum ProcessState {
    /// To be started at this time.
    Down(Instant),
    Up(Box<RunningProcess>),
    /// It was never ready, for this reason, and is not started again.
    Failed(String),
    /// It was asked to exit, and has exited.
    Ended,
}

#[derive(Debug)]
struct RunningProcess {
    pid: Pid,
    since: Instant,
    output: ProcessOutput,
    /// How much output was copied since this time.
    copied: (Instant, usize),
    is_ready: bool,
    boot_timeout: BootTimeout,
    probe: Option<Probe>,
    /// When the next check begins.
    probe_at: Option<Instant>,
    /// How many checks in a row have passed, and failed.
    passes: u32,
    fails: u32,
    /// Why the last check failed.
    problem: Option<String>,
    leaving: Option<Leaving>,
    /// It has been asked to exit, and must have exited by then.
    kill_at: Option<Instant>,
}

/// Why a process was asked to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It is not needed any more.
    Ended,
    /// Another one takes its place.
    Replaced,
    /// It did not become ready in time.
    Late,
}

/// The result of a check.
#[derive(Debug)]
pub struct ProbedProcess {
    /// The index of the process.
    pub index: u16,
    result: Result<(), String>,
}

/// The time between two checks of a process that starts.
const BOOT_INTERVAL: Duration = Duration::from_millis(20);
/// How many bytes of output are copied within this time.
const COPIED_BYTES: usize = 256 * 1024;
const COPY_WINDOW: Duration = Duration::from_millis(100);

// === impl HttpProcess ===

impl HttpProcess {
    /// A process that starts at this time.
    pub fn new(index: u16, address: ProcessAddress, now: Instant) -> HttpProcess {
        HttpProcess { index, address, state: ProcessState::Down(now), backoff: Backoff::default(), is_proven: false }
    }

    /// Its address.
    pub fn address(&self) -> &ProcessAddress {
        &self.address
    }

    /// Whether it has ever been ready.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Why it does not start. It is not started again.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            ProcessState::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Whether it gets requests.
    pub fn is_ready(&self) -> bool {
        self.running().is_some_and(|running| running.is_ready)
    }

    /// Whether it was asked to exit.
    pub fn is_leaving(&self) -> bool {
        self.running().is_some_and(|running| running.leaving.is_some())
    }

    /// Whether it was asked to exit, and has exited.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, ProcessState::Ended)
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<Pid> {
        self.running().map(|running| running.pid)
    }

    fn running(&self) -> Option<&RunningProcess> {
        match &self.state {
            ProcessState::Up(running) => Some(running),
            _ => None,
        }
    }

    fn running_mut(&mut self) -> Option<&mut RunningProcess> {
        match &mut self.state {
            ProcessState::Up(running) => Some(running),
            _ => None,
        }
    }

    /// Its name in messages: "process 1 of \"shop\"".
    fn title(&self, plan: &HttpPlan) -> String {
        format!("process {} of {:?}", self.index + 1, plan.name)
    }

    // Events

    /// The result of its check, when it is there. Copies what the process writes.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ProbedProcess> {
        let index = self.index;
        let Some(running) = self.running_mut() else { return Poll::Pending };
        if running.copied.1 < COPIED_BYTES {
            running.copied.1 += running.output.poll(cx);
        }
        let Some(probe) = &mut running.probe else { return Poll::Pending };
        let result = probe.poll(cx);
        if result.is_ready() {
            running.probe = None;
        }
        result.map(|result| ProbedProcess { index, result })
    }

    /// Takes the result of a check.
    pub fn on_probed(&mut self, probed: ProbedProcess, plan: &HttpPlan, now: Instant) {
        let title = self.title(plan);
        let check = plan.health_check.as_ref();
        let ProcessState::Up(running) = &mut self.state else { return };
        if running.leaving.is_some() {
            return;
        }
        match probed.result {
            Ok(()) => {
                (running.passes, running.fails) = (running.passes.saturating_add(1), 0);
                running.problem = None;
                if running.passes >= check.map_or(1, |check| check.passes) {
                    running.is_ready = true;
                    self.is_proven = true;
                }
            }
            Err(problem) => {
                (running.passes, running.fails) = (0, running.fails.saturating_add(1));
                if running.is_ready && check.is_some_and(|check| running.fails >= check.fails) {
                    let (pid, fails) = (running.pid.as_raw_pid(), running.fails);
                    tracing::error!(
                        "{title} (pid {pid}) failed {fails} health checks ({problem}); replacing it: it gets no requests"
                    );
                    running.leave(Leaving::Replaced, plan, now);
                }
                running.problem = Some(problem);
            }
        }
        running.probe_at = match (running.is_ready, check) {
            (false, _) => Some(now + BOOT_INTERVAL),
            (true, Some(check)) => Some(now + check.interval),
            (true, None) => None,
        };
    }

    /// Its process is dead. `is_proven` is whether the generation was ever ready. Returns `false` if this is the process
    /// of another one.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, plan: &HttpPlan, is_proven: bool, now: Instant) -> bool {
        if self.pid() != Some(dead) {
            return false;
        }
        launch::kill_orphaned_group(dead);
        let title = self.title(plan);
        let ProcessState::Up(mut running) = std::mem::replace(&mut self.state, ProcessState::Ended) else {
            return true;
        };
        if running.leaving == Some(Leaving::Ended) {
            return true;
        }
        let seconds = boot_timeout::timeout().as_secs();
        let reason = match (running.leaving, running.is_ready) {
            (Some(Leaving::Late), _) => format!("was not ready within {seconds} s"),
            (_, true) => end.to_string(),
            (_, false) => format!("{end} before it was ready at {}", self.address.endpoint),
        };
        // Before it was ready, the last check explains why it did not become ready.
        let problem = running.problem.take().filter(|_| running.leaving == Some(Leaving::Late));
        let problem = problem.map(|problem| format!(" ({problem})")).unwrap_or_default();
        if !is_proven {
            let mut reason = format!("its process {} {reason}{problem}", self.index + 1);
            let output = running.output.last_lines();
            if !output.is_empty() {
                let _ = write!(reason, ":\n{output}");
            }
            self.state = ProcessState::Failed(reason);
            return true;
        }
        let pause = match running.leaving {
            Some(Leaving::Replaced) => Duration::ZERO,
            _ => self.backoff.after_death(now - running.since, running.is_ready),
        };
        if running.leaving != Some(Leaving::Replaced) {
            let (pid, delay) = (dead.as_raw_pid(), pause.as_millis());
            // Its last output stands above this line.
            let _ = running.output.last_lines();
            tracing::error!("{title} (pid {pid}) {reason}{problem}; starting another one in {delay} ms");
        }
        self.state = ProcessState::Down(now + pause);
        true
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            ProcessState::Down(at) => Some(*at),
            ProcessState::Up(running) => {
                let boot = running.boot_timeout.deadline().filter(|_| !running.is_ready && running.leaving.is_none());
                let probe = running.probe_at.filter(|_| running.leaving.is_none());
                let copy = Some(running.copied.0 + COPY_WINDOW).filter(|_| running.copied.1 >= COPIED_BYTES);
                [boot, probe, copy, running.kill_at].into_iter().flatten().min()
            }
            ProcessState::Failed(_) | ProcessState::Ended => None,
        }
    }

    /// Starts it, checks it, and kills it if it should have exited.
    pub fn on_time(&mut self, plan: &HttpPlan, is_proven: bool, now: Instant) {
        if matches!(self.state, ProcessState::Down(at) if at <= now) {
            self.start(plan, is_proven, now);
        }
        let title = self.title(plan);
        let ProcessState::Up(running) = &mut self.state else { return };
        if running.copied.0 + COPY_WINDOW <= now {
            running.copied = (now, 0);
        }
        let pid = running.pid.as_raw_pid();
        if running.kill_at.take_if(|at| *at <= now).is_some() {
            let seconds = plan.stop_timeout.as_secs_f64();
            tracing::warn!("{title} (pid {pid}) did not exit within {seconds} s after SIGTERM; killing it");
            reap::kill_group(running.pid, running.pid);
        }
        if running.leaving.is_some() {
            return;
        }
        if running.probe_at.take_if(|at| *at <= now).is_some() {
            self.address.open_to_router();
            let ProcessAddress { endpoint, listening_user, .. } = &self.address;
            running.probe = Some(Probe::begin(endpoint.clone(), *listening_user, plan.health_check.clone()));
        }
        if running.is_ready {
            return;
        }
        match running.boot_timeout.step(now) {
            Some(BootStep::Warn) => {
                let problem = running.problem.as_deref().unwrap_or("no check has ended");
                tracing::warn!("still waiting for {title} (pid {pid}): {problem}");
            }
            Some(BootStep::Fail) => {
                running.leaving = Some(Leaving::Late);
                reap::kill_group(running.pid, running.pid);
            }
            None => {}
        }
    }

    fn start(&mut self, plan: &HttpPlan, is_proven: bool, now: Instant) {
        self.address.clear();
        match self.launch(plan) {
            Ok((pid, output)) => {
                self.state = ProcessState::Up(Box::new(RunningProcess {
                    pid,
                    since: now,
                    output,
                    copied: (now, 0),
                    is_ready: false,
                    boot_timeout: BootTimeout::new(now),
                    probe: None,
                    probe_at: Some(now + BOOT_INTERVAL),
                    passes: 0,
                    fails: 0,
                    problem: None,
                    leaving: None,
                    kill_at: None,
                }));
            }
            Err(error) if is_proven => {
                let pause = self.backoff.after_death(Duration::ZERO, false);
                let title = self.title(plan);
                tracing::error!("{title} cannot be started: {error}; trying again in {} ms", pause.as_millis());
                self.state = ProcessState::Down(now + pause);
            }
            Err(error) => {
                let reason = format!("its process {} cannot be started: {error}", self.index + 1);
                self.state = ProcessState::Failed(reason);
            }
        }
    }

    fn launch(&self, plan: &HttpPlan) -> io::Result<(Pid, ProcessOutput)> {
        let [stdout, stderr] = plan.outputs.files()?;
        let (output, stderr) = ProcessOutput::pipe(stderr)?;
        let mut environment = plan.environment.for_program();
        environment.extend(self.address.variables());
        let order = LaunchOrder {
            command: plan.command.words(|variable| self.address.value(variable)),
            environment,
            working_directory: plan.working_directory.clone(),
            identity: plan.account.identity(),
            user: plan.account.name.clone(),
            descriptors: resources::initial_descriptors(),
        };
        let resources = LaunchResources {
            stdout: stdout.map_or_else(|| stderr.try_clone(), |file| Ok(OwnedFd::from(file)))?,
            stderr,
            socket: self.address.socket.as_ref(),
            cgroup: plan.cgroup.as_ref(),
        };
        Ok((launch::launch(&order, resources)?, output))
    }

    // Its end

    /// Asks it to exit. It is not started again.
    pub fn stop(&mut self, plan: &HttpPlan, now: Instant) {
        match &mut self.state {
            ProcessState::Up(running) => running.leave(Leaving::Ended, plan, now),
            state => *state = ProcessState::Ended,
        }
    }

    /// Kills it. It is not started again.
    pub fn kill(&mut self) {
        match &mut self.state {
            ProcessState::Up(running) => {
                running.leaving = Some(Leaving::Ended);
                (running.is_ready, running.kill_at) = (false, None);
                reap::kill_group(running.pid, running.pid);
            }
            state => *state = ProcessState::Ended,
        }
    }

    /// The process, for a report.
    pub fn process(&self) -> Option<Process> {
        self.pid().and_then(Process::find)
    }
}

// === impl RunningProcess ===

impl RunningProcess {
    fn leave(&mut self, why: Leaving, plan: &HttpPlan, now: Instant) {
        if self.leaving.is_none() {
            reap::terminate_group(self.pid);
            self.kill_at = Some(now + divided(plan.stop_timeout));
        }
        self.leaving = Some(why);
        self.is_ready = false;
        self.probe = None;
    }
}
