//! A whole lab: from its plan to its results.

use super::limit::{self, Search};
use super::machine;
use super::progress::Messages;
use super::rounds::{Contestant, Rounds, StartRecord};
use super::services::Services;
use super::session::Session;
use super::treatment::{self, Observation};
use crate::plan::{BarPlan, LoadPlan, Plan, Source, StackPlan};
use crate::results::{
    Bar, Check, CheckState, FORMAT, Limit, Machine, Method, Outcome, Results, Run, RunState, SkippedStack, Stack,
    Workers,
};
use crate::stacks::Running;
use crate::stacks::detect::{Detection, detect, find};
use crate::stacks::php::Facts;
use crate::statistics::interval::CONFIDENCE;
use crate::statistics::summarize::Measured;
use crate::statistics::{Settings, summarize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How a lab is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// howdah's version.
    pub version: String,
    /// Whether targets may be other machines.
    pub allows_remote: bool,
}

/// A lab whose stacks are known and checked.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The machine.
    pub machine: Machine,
    /// The session.
    pub session: Session,
    /// Helpers of the application; stopped with it.
    pub services: Services,
    /// The stacks that take part.
    pub contestants: Vec<Contestant<'a>>,
    /// The other ones.
    pub skipped: Vec<SkippedStack>,
    /// The observations of the contestants before the race.
    pub observations: Vec<Observation>,
    /// The checks of the machine and of equal treatment.
    pub checks: Vec<Check>,
    /// The loads, with rates in requests per second.
    pub loads: Vec<LoadPlan>,
    /// The start of the lab.
    pub start: Instant,
}

/// Checks the machine and the stacks.
///
/// # Errors
/// The machine is unfit, a service does not start, a target is another machine, or no stack is left.
pub fn prepare<'a>(
    plan: &'a Plan,
    options: &Options,
    interrupted: &AtomicBool,
    messages: &mut Messages,
) -> Result<Prepared<'a>, String> {
    let start = Instant::now();
    let machine = machine::describe();
    let mut checks = machine::check(&machine, plan);
    checks.extend(machine::check_application(plan));
    if plan.counts_events && find("perf").is_none() {
        let finding = "perf is not installed, so system calls are not counted: apt-get install linux-perf".to_owned();
        checks.push(Check { name: "counts".to_owned(), state: CheckState::Warning, finding });
    }
    let unfit: Vec<_> = checks.iter().filter(|check| check.state == CheckState::Failed).collect();
    if !unfit.is_empty() {
        let reasons: Vec<_> = unfit.iter().map(|check| format!("{}: {}", check.name, check.finding)).collect();
        return Err(format!("this machine is not fit for the lab:\n  {}", reasons.join("\n  ")));
    }
    refuse_remote(plan, options)?;
    let session = Session::new(plan, machine.somaxconn, machine.open_files)?;
    let services = Services::start(&plan.services, session.folder(), interrupted)?;
    let mut prepared = Prepared {
        machine,
        session,
        services,
        contestants: Vec::new(),
        skipped: Vec::new(),
        observations: Vec::new(),
        checks,
        loads: plan.loads.clone(),
        start,
    };
    prepared.choose_stacks(plan, interrupted, messages)?;
    prepared.checks.extend(treatment::checks(plan, &prepared.observations));
    for check in &prepared.checks {
        match check.state {
            CheckState::Passed => {}
            CheckState::Warning => messages.line(&format!("{}: {}", check.name, check.finding)),
            CheckState::Failed => messages.line(&format!("UNEQUAL: {}: {}", check.name, check.finding)),
        }
    }
    if prepared.contestants.is_empty() && !interrupted.load(Ordering::Relaxed) {
        let reasons: Vec<_> = prepared.skipped.iter().map(reason).collect();
        return Err(format!("no stack of the lab can run:\n  {}", reasons.join("\n  ")));
    }
    Ok(prepared)
}

/// Runs a lab.
///
/// # Errors
/// As [`prepare`]; or the load generator cannot work. A failure of a stack is a result, not an error.
pub fn run(
    plan: &Plan,
    options: &Options,
    interrupted: &AtomicBool,
    messages: &mut Messages,
) -> Result<Results, String> {
    let started_at = now();
    let mut prepared = prepare(plan, options, interrupted, messages)?;
    prepared.measure_capacity(plan, interrupted, messages)?;
    let mut records = BTreeMap::new();
    let rounds = prepared.rounds(plan, interrupted);
    let runs = rounds.run(&prepared.contestants, &mut records, messages)?;
    let is_interrupted = interrupted.load(Ordering::Relaxed);
    Ok(prepared.results(plan, options, started_at, &records, runs, Vec::new(), is_interrupted))
}

/// Searches the highest rate that each stack holds, with the requests of this load.
///
/// # Errors
/// As [`run`].
pub fn find_limit(
    plan: &Plan,
    options: &Options,
    load: &LoadPlan,
    search: Search,
    interrupted: &AtomicBool,
    messages: &mut Messages,
) -> Result<Results, String> {
    let started_at = now();
    let prepared = prepare(plan, options, interrupted, messages)?;
    let limits = limit::find(&prepared.rounds(plan, interrupted), &prepared.contestants, load, search, messages)?;
    let is_interrupted = interrupted.load(Ordering::Relaxed);
    Ok(prepared.results(plan, options, started_at, &BTreeMap::new(), Vec::new(), limits, is_interrupted))
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time in UTC for the name of a folder: `20261123-211401`.
pub fn time_for_a_name() -> String {
    jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string()
}

/// How a plan measures, for the report.
pub fn method(plan: &Plan, settings: &Settings) -> Method {
    let notes = [
        "In each round, each stack is started, measured under each load and stopped; the order of the stacks is random.",
        "Open loops measure from the intended send time, so that a server that stalls cannot hide it (coordinated omission).",
        "CPU, memory (PSS), threads and context switches are those of the stack's whole process tree, without the load \
         generator and without services such as databases.",
        "Two stacks are compared round by round. A difference counts if its 95 % interval excludes equality and it is at \
         least 1 %; all else is noise.",
    ];
    Method {
        rounds: plan.rounds,
        seed: plan.seed,
        confidence: CONFIDENCE,
        resamples: settings.resamples,
        smallest_difference: settings.smallest_difference,
        generator_cores: plan.generator_cores.clone(),
        server_cores: plan.stack_cores.clone(),
        generator: "this machine".to_owned(),
        notes: notes.map(str::to_owned).to_vec(),
    }
}

fn refuse_remote(plan: &Plan, options: &Options) -> Result<(), String> {
    let is_remote =
        |stack: &&StackPlan| matches!(&stack.source, Source::Running { endpoint, .. } if !endpoint.is_local());
    match plan.stacks.iter().find(is_remote) {
        Some(stack) if !options.allows_remote => Err(format!(
            "the stack {} is another machine ({}): with --allow-remote the lab sends load to it; do that only to machines of \
             your own",
            stack.name, stack.label
        )),
        _ => Ok(()),
    }
}

fn reason(skipped: &SkippedStack) -> String {
    let remedy = if skipped.remedy.is_empty() { String::new() } else { format!(": {}", skipped.remedy) };
    let log: String = skipped.log.iter().map(|line| format!("\n    {line}")).collect();
    format!("{}: {}{remedy}{log}", skipped.name, skipped.reason)
}

fn caveats(plan: &Plan, checks: &[Check], runs: &[crate::results::Run], outcome: &Outcome) -> Vec<String> {
    let mut caveats = Vec::new();
    if *outcome == Outcome::Interrupted {
        caveats.push("The lab was interrupted: not all rounds were run.".to_owned());
    }
    if plan.is_quick {
        caveats.push("The loads were shortened (--quick): a first impression.".to_owned());
    }
    if plan.rounds < 5 {
        caveats.push(format!("{} rounds: small differences are not found.", plan.rounds));
    }
    let voided = runs.iter().filter(|run| matches!(run.state, RunState::Voided { .. })).count();
    if voided > 0 {
        caveats
            .push(format!("{voided} of {} runs were void, because the load generator was the bottleneck.", runs.len()));
    }
    let concerns = checks.iter().filter(|check| check.state != CheckState::Passed);
    caveats.extend(concerns.map(|check| format!("{}: {}.", check.name, check.finding)));
    caveats
}

// === impl Prepared ===

impl<'a> Prepared<'a> {
    /// The rounds of this lab.
    pub fn rounds<'b>(&'b self, plan: &'b Plan, interrupted: &'b AtomicBool) -> Rounds<'b> {
        let (session, services) = (&self.session, &self.services.renderer);
        Rounds { plan, loads: &self.loads, session, services, start: self.start, interrupted }
    }

    /// Measures the capacity that rates in percent refer to, and makes them requests per second.
    fn measure_capacity(
        &mut self,
        plan: &Plan,
        interrupted: &AtomicBool,
        messages: &mut Messages,
    ) -> Result<(), String> {
        let Some(capacity) = plan.capacity.as_ref().filter(|_| plan.loads.iter().any(LoadPlan::is_relative)) else {
            return Ok(());
        };
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        messages.passing(&format!("measuring the capacity of {}", capacity.stack));
        let contestant = self.contestants.iter().find(|contestant| contestant.plan.name == capacity.stack);
        let contestant = contestant.ok_or_else(|| format!("capacity: {} takes no part in the race", capacity.stack))?;
        let rate = self.rounds(plan, interrupted).throughput(contestant, &capacity.load);
        let rate = rate.map_err(|reason| format!("capacity: {reason}"))?;
        let finding = format!("{} completes {rate:.0} requests/s: rates in percent are of these", capacity.stack);
        messages.line(&format!("capacity: {finding}"));
        self.checks.push(Check { name: "capacity".to_owned(), state: CheckState::Passed, finding });
        self.loads = plan.loads.iter().map(|load| load.at_capacity(rate)).collect();
        Ok(())
    }

    /// Looks for each stack, starts it once, and compares its answers with those of the first one.
    fn choose_stacks(
        &mut self,
        plan: &'a Plan,
        interrupted: &AtomicBool,
        messages: &mut Messages,
    ) -> Result<(), String> {
        let targets = treatment::targets(plan);
        for stack in &plan.stacks {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            messages.passing(&format!("checking {}", stack.name));
            match self.try_stack(plan, stack, &targets, interrupted) {
                Ok((contestant, observation)) => {
                    self.contestants.push(contestant);
                    self.observations.push(observation);
                }
                Err(skipped) if interrupted.load(Ordering::Relaxed) => drop(skipped),
                Err(skipped) => {
                    messages.line(&format!("skipped: {}", reason(&skipped)));
                    self.skipped.push(*skipped);
                }
            }
        }
        Ok(())
    }

    fn try_stack(
        &self,
        plan: &'a Plan,
        stack: &'a StackPlan,
        targets: &[crate::load::target::Target],
        interrupted: &AtomicBool,
    ) -> Result<(Contestant<'a>, Observation), Box<SkippedStack>> {
        let skipped = |reason: String, remedy: String, log: Vec<String>| {
            Box::new(SkippedStack {
                name: stack.name.clone(),
                label: stack.label.clone(),
                manifest: manifest_of(stack),
                reason,
                remedy,
                log,
            })
        };
        let detection = match &stack.source {
            Source::Started(spec) => detect(&spec.definition, &plan.application.php)
                .map_err(|missing| skipped(missing.reason, missing.remedy, Vec::new()))?,
            Source::Running { .. } => Detection::default(),
            Source::Unusable { reason, remedy, .. } => return Err(skipped(reason.clone(), remedy.clone(), Vec::new())),
        };
        let contestant = Contestant { plan: stack, detection };
        let rounds = self.rounds(plan, interrupted);
        let (started, place) =
            rounds.start(&contestant, true).map_err(|failure| skipped(failure.reason, String::new(), failure.log))?;
        let answers = treatment::observe(&started.endpoint, &started.host, targets);
        let log = started.running.as_ref().map(Running::log).unwrap_or_default();
        if let Some(running) = started.running {
            running.stop();
        }
        let answers = answers.map_err(|reason| skipped(reason, String::new(), log.clone()))?;
        let facts = place.facts.as_deref().and_then(Facts::read);
        let observation = Observation { stack: stack.name.clone(), facts, answers };
        if let Some(first) = self.observations.first()
            && let Some(difference) = treatment::difference(targets, first, &observation, &plan.varies)
        {
            let reason = format!("it answers differently from {}: {difference}", first.stack);
            let remedy = "correct the stack, or state the difference as a pattern in \"varies\" of lab.json".to_owned();
            return Err(skipped(reason, remedy, log));
        }
        Ok((contestant, observation))
    }

    /// All that was measured.
    #[expect(clippy::too_many_arguments, reason = "the parts of the results, once")]
    fn results(
        &self,
        plan: &Plan,
        options: &Options,
        started_at: String,
        records: &BTreeMap<String, StartRecord>,
        runs: Vec<Measured>,
        limits: Vec<Limit>,
        is_interrupted: bool,
    ) -> Results {
        let settings = Settings { seed: plan.seed, ..Settings::default() };
        let loads: Vec<_> = self.loads.iter().map(LoadPlan::describe).collect();
        let stacks: Vec<_> =
            self.contestants.iter().map(|contestant| self.describe(plan, contestant, records)).collect();
        let summaries = summarize::summaries(&stacks, &loads, &runs, &settings);
        let comparisons = summarize::comparisons(&stacks, &loads, &runs, &settings);
        let outcome = if is_interrupted { Outcome::Interrupted } else { Outcome::Complete };
        let runs: Vec<_> = runs.into_iter().map(|measured| measured.run).collect();
        let caveats = caveats(plan, &self.checks, &runs, &outcome);
        let bars = judge(plan, &runs);
        let verdict = summarize::verdict(&stacks, &loads, &summaries, &comparisons, caveats);
        Results {
            format: FORMAT,
            title: plan.title.clone(),
            description: plan.description.clone(),
            outcome,
            started_at,
            duration_seconds: self.start.elapsed().as_secs_f64(),
            lab_version: options.version.clone(),
            command: options.command.clone(),
            quick: plan.is_quick,
            lab: plan.text.clone(),
            machine: self.machine.clone(),
            method: method(plan, &settings),
            checks: self.checks.clone(),
            loads,
            stacks,
            skipped: self.skipped.clone(),
            runs,
            summaries,
            comparisons,
            verdict,
            limits,
            bars,
        }
    }

    /// A stack, as results.json has it.
    pub fn describe(&self, plan: &Plan, contestant: &Contestant, records: &BTreeMap<String, StartRecord>) -> Stack {
        let stack = contestant.plan;
        let record = records.get(&stack.name).cloned().unwrap_or_default();
        let (count, policy) = treatment::worker_policy(plan, stack);
        let (settings, notes) = match &stack.source {
            Source::Started(spec) => (spec.settings.clone(), spec.definition.manifest.notes.clone()),
            _ => (BTreeMap::new(), vec!["It ran already: its processes and its PHP are unknown.".to_owned()]),
        };
        let observation = self.observations.iter().find(|observation| observation.stack == stack.name);
        let mut ready: Vec<_> = record.ready_after.iter().map(|ready| ready.as_secs_f64()).collect();
        ready.sort_by(f64::total_cmp);
        Stack {
            name: stack.name.clone(),
            label: stack.label.clone(),
            manifest: manifest_of(stack),
            settings,
            versions: contestant.detection.versions.clone(),
            workers: Workers { count, policy },
            php: observation.and_then(treatment::php_facts),
            files: record.files,
            commands: record.commands,
            notes,
            ready_after_seconds: ready.get(ready.len() / 2).map(|ready| (ready * 1000.0).round() / 1000.0),
        }
    }
}

/// The bars of the lab, as these runs answer them.
fn judge(plan: &Plan, runs: &[Run]) -> Vec<Bar> {
    let runs: Vec<_> = runs.iter().collect();
    let judge = |bar: &BarPlan| {
        let answer = bar.question.answer(&runs);
        let promise = bar.question.to_string();
        Bar { promise, measured: answer.measured, met: answer.met, optional: bar.optional }
    };
    plan.bars.iter().map(judge).collect()
}

fn manifest_of(stack: &StackPlan) -> String {
    match &stack.source {
        Source::Started(spec) => spec.definition.name.clone(),
        Source::Running { .. } => "url".to_owned(),
        Source::Unusable { manifest, .. } => manifest.clone(),
    }
}
