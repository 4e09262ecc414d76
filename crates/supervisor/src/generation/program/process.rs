//! One process of a program: its start, its checks, its death and its end.
//!
//! An HTTP server is ready when its address accepts a connection, and when `health_check` passes if that is set; a worker
//! of RoadRunner when it has answered the handshake. A process that dies is started again after a pause, and so is one that fails its checks. A process of a generation that was never ready is
//! not: the failure is the answer to the change that started the generation.

use crate::generation::process_output::ProcessOutput;
use crate::generation::program::interface::{CheckFailure, ProcessCheck, ProcessInterface};
use crate::generation::program::memory_watch::MemoryWatch;
use crate::os::processes::launch::{self, LaunchResources};
use crate::os::processes::process::Process;
use crate::os::processes::reap;
use crate::os::resources;
use crate::plan::program::ProgramPlan;
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
pub struct ProgramProcess {
    /// Its index in the generation.
    index: u16,
    interface: ProcessInterface,
    state: ProcessState,
    backoff: Backoff,
    /// Whether it has ever been ready.
    is_proven: bool,
    /// How often it was started.
    starts: u32,
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
    is_ready: bool,
    boot_timeout: BootTimeout,
    check: Option<ProcessCheck>,
    /// When the next check begins.
    check_at: Option<Instant>,
    /// How many checks in a row have passed, and failed.
    passes: u32,
    fails: u32,
    /// Why the last check failed.
    problem: Option<String>,
    leaving: Option<Leaving>,
    /// Why the generation has failed, if it was killed before it was ready and has not exited.
    given_up: Option<String>,
    /// Once it is ready, if its memory has a limit.
    memory: Option<MemoryWatch>,
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
    /// Another one takes its place, after the pause of a process that died: it did not work.
    Discarded,
    /// It did not become ready in time.
    Late,
    /// It cannot become ready.
    Useless,
}

/// The result of a check.
#[derive(Debug)]
pub struct CheckedProcess {
    /// The index of the process.
    pub index: u16,
    result: Result<(), CheckFailure>,
}

/// The least time between two attempts to start a process.
const START_PAUSE: Duration = Duration::from_millis(20);

// === impl ProgramProcess ===

impl ProgramProcess {
    /// A process that starts at this time.
    pub fn new(index: u16, interface: ProcessInterface, now: Instant) -> ProgramProcess {
        let (state, backoff) = (ProcessState::Down(now), Backoff::default());
        ProgramProcess { index, interface, state, backoff, is_proven: false, starts: 0 }
    }

    /// How it gets requests.
    pub fn interface(&self) -> &ProcessInterface {
        &self.interface
    }

    /// The number of its start, if it gets requests.
    pub fn ready_start(&self) -> Option<u32> {
        self.is_ready().then_some(self.starts)
    }

    /// Whether it has ever been ready.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Why it does not start. It is not started again.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            ProcessState::Failed(reason) => Some(reason),
            ProcessState::Up(running) => running.given_up.as_deref(),
            ProcessState::Down(_) | ProcessState::Ended => None,
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

    /// How often it was started.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<Pid> {
        self.running().map(|running| running.pid)
    }

    /// When it was started, while it runs.
    pub fn running_since(&self) -> Option<Instant> {
        self.running().map(|running| running.since)
    }

    fn running(&self) -> Option<&RunningProcess> {
        match &self.state {
            ProcessState::Up(running) => Some(running),
            _ => None,
        }
    }

    /// Its name in messages: "process 1 of \"shop\"".
    fn title(&self, plan: &ProgramPlan) -> String {
        format!("process {} of {:?}", self.index + 1, plan.name)
    }

    // Events

    /// The result of its check, when it is there. Copies what the process writes.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CheckedProcess> {
        let index = self.index;
        let ProcessState::Up(running) = &mut self.state else { return Poll::Pending };
        running.output.poll(cx);
        let Some(check) = &mut running.check else { return Poll::Pending };
        let result = check.poll(cx);
        if result.is_ready() {
            running.check = None;
        }
        result.map(|result| CheckedProcess { index, result })
    }

    /// Takes the result of a check.
    pub fn on_checked(&mut self, checked: CheckedProcess, plan: &ProgramPlan, now: Instant) {
        let title = self.title(plan);
        let check = plan.health_check();
        let ProcessState::Up(running) = &mut self.state else { return };
        if running.leaving.is_some() {
            return;
        }
        match checked.result {
            Ok(()) => {
                (running.passes, running.fails) = (running.passes.saturating_add(1), 0);
                running.problem = None;
                if running.passes >= check.map_or(1, |check| check.passes) {
                    running.is_ready = true;
                    self.is_proven = true;
                    let limit = plan.limits().and_then(|limits| limits.memory);
                    running.memory = limit.map(|limit| MemoryWatch::begin(running.pid, limit, now));
                }
            }
            Err(CheckFailure::Silent(problem)) => running.problem = Some(problem),
            Err(CheckFailure::Final(problem)) => {
                running.problem = Some(problem);
                running.discard(Leaving::Useless, now);
                return;
            }
            Err(CheckFailure::NotYet(problem)) => {
                (running.passes, running.fails) = (0, running.fails.saturating_add(1));
                if running.is_ready && check.is_some_and(|check| running.fails >= check.fails) {
                    let (pid, fails) = (running.pid.as_raw_pid(), running.fails);
                    tracing::error!(
                        "{title} (pid {pid}) failed {fails} health checks ({problem}); replacing it: it gets no requests"
                    );
                    running.leave(Leaving::Replaced, &self.interface, plan, now);
                }
                running.problem = Some(problem);
            }
        }
        running.check_at = match (running.is_ready, check) {
            (false, _) => self.interface.boot_interval(false).map(|interval| now + interval),
            (true, Some(check)) => Some(now + check.interval),
            (true, None) => None,
        };
    }

    /// Its process is dead. `is_proven` is whether the generation was ever ready. Returns `false` if this is the process
    /// of another one.
    pub fn on_death(&mut self, dead: Pid, end: ProcessEnd, plan: &ProgramPlan, is_proven: bool, now: Instant) -> bool {
        if self.pid() != Some(dead) {
            return false;
        }
        launch::kill_orphaned_group(dead);
        let title = self.title(plan);
        let ProcessState::Up(mut running) = std::mem::replace(&mut self.state, ProcessState::Ended) else {
            return true;
        };
        let output = match running.is_ready {
            true => String::new(),
            false => self.interface.last_output(running.check.as_ref()),
        };
        self.interface.clear();
        if running.leaving == Some(Leaving::Ended) {
            return true;
        }
        let seconds = boot_timeout::timeout().as_secs();
        let reason = match (running.leaving, running.is_ready) {
            (Some(Leaving::Late), _) => format!("was not ready within {seconds} s"),
            (Some(Leaving::Useless), _) => "was killed".to_owned(),
            (_, true) => end.to_string(),
            (_, false) => format!("{end} before it was ready{}{output}", self.interface.location()),
        };
        // Before it was ready, the last check explains why it did not become ready.
        let is_explained = matches!(running.leaving, Some(Leaving::Late | Leaving::Useless));
        let problem = running.problem.take().filter(|_| is_explained);
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
            Some(Leaving::Discarded) => self.backoff.after_death(now - running.since, true),
            _ => self.backoff.after_death(now - running.since, running.is_ready),
        };
        if !matches!(running.leaving, Some(Leaving::Replaced | Leaving::Discarded)) {
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
                let boots = !running.is_ready && (running.leaving.is_none() || running.is_discarded_early());
                let boot = running.boot_timeout.deadline().filter(|_| boots);
                let check = running.check_at.filter(|_| running.leaving.is_none());
                let memory = running.memory.as_ref().and_then(MemoryWatch::deadline).filter(|_| running.is_ready);
                [boot, check, memory, running.kill_at].into_iter().flatten().min()
            }
            ProcessState::Failed(_) | ProcessState::Ended => None,
        }
    }

    /// Starts it, checks it, and kills it if it should have exited.
    pub fn on_time(&mut self, plan: &ProgramPlan, is_proven: bool, now: Instant) {
        if matches!(self.state, ProcessState::Down(at) if at <= now) {
            self.start(plan, is_proven, now);
        }
        let title = self.title(plan);
        let ProcessState::Up(running) = &mut self.state else { return };
        let pid = running.pid.as_raw_pid();
        if running.kill_at.take_if(|at| *at <= now).is_some() {
            let (seconds, request) = match running.leaving {
                Some(_) => (plan.stop_timeout.as_secs_f64(), self.interface.exit_request()),
                None => (reap::CLOSED_GRACE.as_secs_f64(), &*format!("it had closed its {}", self.interface.medium())),
            };
            tracing::warn!("{title} (pid {pid}) did not exit within {seconds} s after {request}; killing it");
            reap::kill_group(running.pid, running.pid);
        }
        if running.is_discarded_early() {
            self.give_up(is_proven, now);
            return;
        }
        if running.leaving.is_some() {
            return;
        }
        if running.check_at.take_if(|at| *at <= now).is_some() {
            match self.interface.begin_check(running.pid, plan) {
                Ok(check) => running.check = Some(check),
                Err(error) => {
                    running.problem = Some(error.to_string());
                    running.discard(Leaving::Useless, now);
                    return;
                }
            }
        }
        if let Some(memory) = &mut running.memory {
            memory.on_time(now);
        }
        if running.is_ready {
            return;
        }
        match running.boot_timeout.step(now) {
            Some(BootStep::Warn) => {
                let silence = self.interface.silence();
                let problem = running.problem.as_deref().or(silence.as_deref()).unwrap_or("no check has ended");
                tracing::warn!("still waiting for {title} (pid {pid}): {problem}");
            }
            Some(BootStep::Fail) => {
                running.problem = running.problem.take().or_else(|| self.interface.silence());
                running.discard(Leaving::Late, now);
            }
            Some(BootStep::GiveUp) | None => {}
        }
    }

    /// A process that was killed before it was ready has not exited: a generation that was never ready fails without its
    /// death.
    fn give_up(&mut self, is_proven: bool, now: Instant) {
        let ProcessState::Up(running) = &mut self.state else { return };
        if running.boot_timeout.step(now) == Some(BootStep::GiveUp) && !is_proven {
            let problem = running.problem.as_deref().map(|problem| format!(" ({problem})")).unwrap_or_default();
            running.given_up = Some(format!(
                "its process {} (pid {}) was not ready{problem}; it was killed and has not exited: does a file system hang?",
                self.index + 1,
                running.pid.as_raw_pid()
            ));
        }
    }

    fn start(&mut self, plan: &ProgramPlan, is_proven: bool, now: Instant) {
        self.starts = self.starts.wrapping_add(1);
        let title = self.title(plan);
        match self.interface.prepare(&title).and_then(|()| self.launch(plan)) {
            Ok((pid, output)) => {
                self.state = ProcessState::Up(Box::new(RunningProcess {
                    pid,
                    since: now,
                    output,
                    is_ready: false,
                    boot_timeout: BootTimeout::new(now),
                    check: None,
                    check_at: self.interface.boot_interval(true).map(|interval| now + interval),
                    passes: 0,
                    fails: 0,
                    problem: None,
                    leaving: None,
                    given_up: None,
                    memory: None,
                    kill_at: None,
                }));
            }
            Err(error) if is_proven => {
                let pause = self.backoff.after_death(Duration::ZERO, false).max(START_PAUSE);
                tracing::error!("{title} cannot be started: {error}; trying again in {} ms", pause.as_millis());
                self.state = ProcessState::Down(now + pause);
            }
            Err(error) => {
                let reason = format!("its process {} cannot be started: {error}", self.index + 1);
                self.state = ProcessState::Failed(reason);
            }
        }
    }

    fn launch(&mut self, plan: &ProgramPlan) -> io::Result<(Pid, ProcessOutput)> {
        let [stdout, _] = plan.outputs.files()?;
        let streams = self.interface.open()?;
        let (output, stderr) = ProcessOutput::pipe(plan.outputs.stderr_writer())?;
        let mut environment = plan.environment.for_program();
        environment.extend(self.interface.variables());
        let order = LaunchOrder {
            command: plan.command.words(|variable| self.interface.value(variable)),
            environment,
            working_directory: plan.working_directory.clone(),
            identity: plan.account.identity(),
            user: plan.account.name.clone(),
            descriptors: resources::initial_descriptors(),
        };
        let (stdin, stdout) = match streams {
            Some((stdin, stdout)) => (Some(stdin), stdout),
            None => (None, stdout.map_or_else(|| stderr.try_clone(), |file| Ok(OwnedFd::from(file)))?),
        };
        let (socket, cgroup) = (self.interface.socket(), plan.cgroup.as_ref());
        let resources = LaunchResources { stdin, stdout, stderr, socket, cgroup };
        Ok((launch::launch(&order, resources)?, output))
    }

    /// Whether it has grown beyond its limit of memory, once for each start.
    pub fn take_has_grown(&mut self) -> bool {
        match &mut self.state {
            ProcessState::Up(running) if running.is_ready => {
                running.memory.as_mut().is_some_and(MemoryWatch::take_has_grown)
            }
            _ => false,
        }
    }

    // Its end

    /// Asks it to exit. It is not started again.
    pub fn stop(&mut self, plan: &ProgramPlan, now: Instant) {
        match &mut self.state {
            ProcessState::Up(running) => running.leave(Leaving::Ended, &self.interface, plan, now),
            state => *state = ProcessState::Ended,
        }
    }

    /// Asks it to exit, and starts another one in its place.
    pub fn replace(&mut self, plan: &ProgramPlan, now: Instant) {
        if let ProcessState::Up(running) = &mut self.state
            && running.leaving.is_none()
        {
            running.leave(Leaving::Replaced, &self.interface, plan, now);
        }
    }

    /// The same after the pause of a process that died: it did not work.
    pub fn replace_after_pause(&mut self, plan: &ProgramPlan, now: Instant) {
        if let ProcessState::Up(running) = &mut self.state
            && running.leaving.is_none()
        {
            running.leave(Leaving::Discarded, &self.interface, plan, now);
        }
    }

    /// It has closed a pipe: it must exit soon.
    pub fn on_closed(&mut self, now: Instant) {
        if let ProcessState::Up(running) = &mut self.state
            && running.leaving.is_none()
        {
            running.kill_at.get_or_insert(now + reap::CLOSED_GRACE);
        }
    }

    /// Kills it, and starts another one in its place.
    pub fn discard(&mut self) {
        if let ProcessState::Up(running) = &mut self.state
            && running.leaving.is_none()
        {
            running.discard(Leaving::Discarded, Instant::now());
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
    /// Whether it was killed because it was not ready in time, or cannot become ready.
    fn is_discarded_early(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Late | Leaving::Useless))
    }

    fn leave(&mut self, why: Leaving, interface: &ProcessInterface, plan: &ProgramPlan, now: Instant) {
        if self.leaving.is_none() {
            interface.request_exit(self.pid);
            self.kill_at = Some(now + divided(plan.stop_timeout));
        }
        self.leaving = Some(why);
        self.is_ready = false;
        self.check = None;
    }

    fn discard(&mut self, why: Leaving, now: Instant) {
        self.leaving = Some(why);
        self.boot_timeout.on_killed(now);
        self.is_ready = false;
        self.check = None;
        reap::kill_group(self.pid, self.pid);
    }
}
