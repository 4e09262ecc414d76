//! All runs of a lab in their order: in each round, each stack in random order is started, gets all loads, and is stopped.

use super::progress::{Messages, bar};
use super::race::{self, Means, Position, Target};
use super::session::Session;
use super::treatment::describe_wrong;
use crate::load::connection::Endpoint;
use crate::load::{Pace, single};
use crate::measure::Role;
use crate::plan::{LoadPlan, Plan, Source, StackPlan};
use crate::results::{CommandUsed, RunState, StackFile};
use crate::stacks::template::Renderer;
use crate::stacks::{Detection, Running, StartFailure};
use crate::statistics::order::interleaved;
use crate::statistics::summarize::Measured;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A stack that takes part.
#[derive(Clone, Debug)]
pub struct Contestant<'a> {
    /// Its plan.
    pub plan: &'a StackPlan,
    /// Its programs.
    pub detection: Detection,
}

/// A stack that answers.
#[derive(Debug)]
pub struct Started {
    /// Its processes; `None` if it ran already.
    pub running: Option<Running>,
    /// Its address.
    pub endpoint: Endpoint,
    /// The value of `Host`.
    pub host: String,
    /// The time until its first right answer.
    pub ready_after: Duration,
}

/// The record of the starts of a stack.
#[derive(Clone, Debug, Default)]
pub struct StartRecord {
    /// Configuration files of the first start.
    pub files: Vec<StackFile>,
    /// Commands of the first start.
    pub commands: Vec<CommandUsed>,
    /// The times until the first right answers.
    pub ready_after: Vec<Duration>,
}

/// All that rounds need.
#[derive(Debug)]
pub struct Rounds<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its loads, with rates in requests per second.
    pub loads: &'a [LoadPlan],
    /// The session.
    pub session: &'a Session,
    /// Renders templates that use the ports of services.
    pub services: &'a Renderer,
    /// The start of the lab.
    pub start: Instant,
    /// Ends everything.
    pub interrupted: &'a AtomicBool,
}

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

// === impl Rounds ===

impl Rounds<'_> {
    /// Runs all rounds.
    pub fn run(
        &self,
        contestants: &[Contestant],
        records: &mut BTreeMap<String, StartRecord>,
        messages: &mut Messages,
    ) -> Result<Vec<Measured>, String> {
        let mut runs: Vec<Measured> = Vec::new();
        let total = contestants.len() as u32 * self.plan.rounds * self.loads.len() as u32;
        for (index, order) in interleaved(contestants.len(), self.plan.rounds, self.plan.seed).iter().enumerate() {
            let round = index as u32 + 1;
            for contestant in order.iter().map(|number| &contestants[*number]) {
                if self.is_interrupted() {
                    return Ok(runs);
                }
                let record = records.entry(contestant.plan.name.clone()).or_default();
                self.run_stack(contestant, round, total, record, &mut runs, messages)?;
            }
        }
        Ok(runs)
    }

    /// Starts a stack and waits for its first right answer.
    ///
    /// # Errors
    /// It does not become ready.
    pub fn start(
        &self,
        contestant: &Contestant,
        has_facts: bool,
    ) -> Result<(Started, super::session::Place), StartFailure> {
        let place = self.session.place(contestant.plan, self.services, has_facts).map_err(StartFailure::of)?;
        let begin = Instant::now();
        let (mut running, endpoint, host) = match &contestant.plan.source {
            Source::Started(spec) => {
                let mut spec = spec.clone();
                for value in spec.environment.values_mut() {
                    *value = self.services.render(value).map_err(StartFailure::of)?;
                }
                let running = Running::start(
                    &spec,
                    &self.session.conditions,
                    &contestant.detection,
                    &place.folder,
                    &place.php_ini.path,
                    self.interrupted,
                )?;
                let endpoint = running.endpoint.clone();
                let host = endpoint.to_string();
                (Some(running), endpoint, host)
            }
            Source::Running { endpoint, host } => (None, endpoint.clone(), host.clone()),
            Source::Unusable { reason, .. } => return Err(StartFailure::of(reason.clone())),
        };
        match self.wait_for_right_answer(&endpoint, &host, running.as_mut()) {
            Ok(()) => Ok((Started { running, endpoint, host, ready_after: begin.elapsed() }, place)),
            Err(reason) => Err(match running {
                Some(running) => self.with_php_errors(running.fail(reason)),
                None => StartFailure::of(reason),
            }),
        }
    }

    /// Starts a stack, measures a closed loop, and stops it: right requests per second.
    ///
    /// # Errors
    /// The stack does not start, or answers no request.
    pub fn throughput(&self, contestant: &Contestant, load: &LoadPlan) -> Result<f64, String> {
        let name = &contestant.plan.name;
        let (started, _place) = self.start(contestant, false).map_err(|failure| failure.reason)?;
        let means = Means { perf: None, ..Means::of(self.plan) };
        let target = Target { stack: name, endpoint: &started.endpoint, host: &started.host, roots: &[], roles: &[] };
        let measured = race::run(&target, load, &means, self.position(1, 0), self.interrupted, &mut |_| {});
        if let Some(running) = started.running {
            running.stop();
        }
        let rate = measured?.run.requests_per_second;
        if rate > 0.0 { Ok(rate) } else { Err(format!("{name} answered no request")) }
    }

    fn run_stack(
        &self,
        contestant: &Contestant,
        round: u32,
        total: u32,
        record: &mut StartRecord,
        runs: &mut Vec<Measured>,
        messages: &mut Messages,
    ) -> Result<(), String> {
        let name = &contestant.plan.name;
        let roles = contestant.roles();
        let mut running: Option<Started> = None;
        for (index, load) in self.loads.iter().enumerate() {
            if self.is_interrupted() {
                break;
            }
            if load.is_fresh
                && let Some(Started { running: Some(before), .. }) = running.take()
            {
                before.stop();
            }
            if running.is_none() {
                messages.passing(&format!("round {round}/{}: starting {name}", self.plan.rounds));
                match self.start(contestant, false) {
                    Ok((started, _place)) => {
                        record.add(&started);
                        running = Some(started);
                    }
                    Err(failure) => {
                        messages.line(&format!("round {round}/{}: {name}: {}", self.plan.rounds, failure.reason));
                        for load in &self.loads[index..] {
                            let state = RunState::Failed { reason: failure.reason.clone(), log: failure.log.clone() };
                            let position = self.position(round, runs.len());
                            runs.push(race::without_load(name, &load.name, position, state));
                        }
                        return Ok(());
                    }
                }
            }
            let Some(started) = running.as_mut() else { break };
            let position = self.position(round, runs.len());
            let place = format!(
                "{} {}/{total} round {round}: {name}, {}",
                bar(f64::from(position.position - 1) / f64::from(total)),
                position.position,
                load.name
            );
            let measured = self.run_load(started, name, &roles, load, position, &place, messages)?;
            messages.line(&line(&place, &measured));
            let is_dead = matches!(measured.run.state, RunState::Failed { .. });
            runs.push(measured);
            if is_dead {
                break;
            }
        }
        if let Some(Started { running: Some(running), .. }) = running {
            running.stop();
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one run, once")]
    fn run_load(
        &self,
        started: &mut Started,
        name: &str,
        roles: &[Role],
        load: &LoadPlan,
        position: Position,
        place: &str,
        messages: &mut Messages,
    ) -> Result<Measured, String> {
        let roots = started.running.as_ref().map(Running::roots).unwrap_or_default();
        let target = Target { stack: name, endpoint: &started.endpoint, host: &started.host, roots: &roots, roles };
        let means = Means::of(self.plan);
        let mut measured = race::run(&target, load, &means, position, self.interrupted, &mut |progress| {
            let length = match &load.pace {
                Pace::Open { schedule, .. } => format!("/{} s", schedule.length().as_secs()),
                Pace::Closed { length: Some(length), .. } => format!("/{} s", length.as_secs()),
                Pace::Closed { .. } => " s".to_owned(),
            };
            let beat = progress.beat;
            let (second, right, failed) = (beat.second + 1, beat.right, beat.failed);
            messages.passing(&format!("{place}: {second}{length}, {right} right, {failed} failed in this second"));
        })?;
        if let Some(running) = &mut started.running
            && let Some(death) = running.death()
        {
            let reason = format!("{death} under load");
            measured.run.state = RunState::Failed { reason, log: running.log() };
        }
        Ok(measured)
    }

    fn wait_for_right_answer(
        &self,
        endpoint: &Endpoint,
        host: &str,
        mut running: Option<&mut Running>,
    ) -> Result<(), String> {
        let Some(target) = self.loads.first().and_then(|load| load.targets.first()) else { return Ok(()) };
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let reason = match single::request(endpoint, host, target, READY_TIMEOUT) {
                Ok(answer) if answer.is_right => return Ok(()),
                Ok(answer) => describe_wrong(target, &answer),
                Err(reason) => reason,
            };
            if let Some(death) = running.as_mut().and_then(|running| running.death()) {
                return Err(format!("{death} before its first right answer"));
            }
            if self.is_interrupted() {
                return Err("interrupted".to_owned());
            }
            // A server that starts may answer 503; a wrong page stays wrong.
            if Instant::now() > deadline || reason.contains("status 4") || reason.contains("status 2") {
                return Err(format!("no right answer: {reason}"));
            }
            std::thread::sleep(POLL);
        }
    }

    fn with_php_errors(&self, mut failure: StartFailure) -> StartFailure {
        failure.log.extend(self.session.php_errors());
        failure
    }

    fn position(&self, round: u32, runs: usize) -> Position {
        Position { round, position: runs as u32 + 1, started_after: self.start.elapsed() }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

// === impl Contestant ===

impl Contestant<'_> {
    /// The jobs of its processes.
    pub fn roles(&self) -> Vec<Role> {
        match &self.plan.source {
            // The library has read them before.
            Source::Started(spec) => spec.definition.manifest.read_roles().unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

// === impl StartRecord ===

impl StartRecord {
    fn add(&mut self, started: &Started) {
        self.ready_after.push(started.ready_after);
        if let Some(running) = started.running.as_ref().filter(|_| self.commands.is_empty()) {
            self.files.clone_from(&running.files);
            self.commands.clone_from(&running.commands);
        }
    }
}

/// A run in one line.
fn line(place: &str, measured: &Measured) -> String {
    let run = &measured.run;
    let p99 = run.latency.percentiles.as_ref().map_or_else(String::new, |p| format!(", p99 {:.1} ms", p.p99));
    let state = match &run.state {
        RunState::Complete => String::new(),
        RunState::Stopped { reason } => format!("; stopped: {reason}"),
        RunState::Voided { reason } => format!("; VOID: {reason}"),
        RunState::Failed { reason, .. } => format!("; FAILED: {reason}"),
        RunState::Interrupted => "; interrupted".to_owned(),
    };
    let failed = if run.failed > 0 { format!(", {} failed", run.failed) } else { String::new() };
    format!("{place}: {:.0} requests/s{p99}{failed}{state}", run.requests_per_second)
}
