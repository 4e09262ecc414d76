//! All texts of the report's page, as its template needs them.

use super::tables::{LoadTable, load_tables};
use super::verdict::{VerdictText, verdict};
use super::words;
use crate::results::{Bar, CheckState, Core, Outcome, Results, Run, RunState, SkippedStack, Stack};
use serde::Serialize;

/// All texts of the page.
#[derive(Debug, Serialize)]
pub struct Contents<'a> {
    title: &'a str,
    description: &'a str,
    started_at: &'a str,
    duration: String,
    lab_version: &'a str,
    /// The command line.
    command: String,
    quick: bool,
    interrupted: bool,
    verdict: VerdictText,
    /// The configurations of the recommended stacks.
    advice: Vec<StackText<'a>>,
    tables: Vec<LoadTable>,
    bars: &'a [Bar],
    has_charts: bool,
    stacks: Vec<StackText<'a>>,
    skipped: &'a [SkippedStack],
    limits: Vec<LimitRow>,
    checks: Vec<CheckRow<'a>>,
    /// Names and values.
    machine: Vec<(&'static str, String)>,
    /// Names and values.
    method: Vec<(&'static str, String)>,
    method_notes: &'a [String],
    loads: Vec<LoadText>,
    runs: Vec<RunRow<'a>>,
    /// lab.json, formatted.
    lab: String,
}

/// A stack with its configuration.
#[derive(Debug, Serialize)]
struct StackText<'a> {
    number: usize,
    label: &'a str,
    name: &'a str,
    /// Names and values.
    facts: Vec<(&'static str, String)>,
    files: Vec<FileText<'a>>,
    commands: Vec<CommandText<'a>>,
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct FileText<'a> {
    path: &'a str,
    content: &'a str,
    is_configuration: bool,
}

#[derive(Debug, Serialize)]
struct CommandText<'a> {
    purpose: &'a str,
    /// With its environment, for a shell.
    line: String,
}

#[derive(Debug, Serialize)]
struct LimitRow {
    stack: usize,
    label: String,
    load: String,
    objective: String,
    held: String,
    missed: String,
    probes: String,
}

#[derive(Debug, Serialize)]
struct CheckRow<'a> {
    name: &'a str,
    state: &'static str,
    finding: &'a str,
}

#[derive(Debug, Serialize)]
struct LoadText {
    label: String,
    name: String,
    kind: String,
    /// Names and values.
    facts: Vec<(&'static str, String)>,
    requests: Vec<[String; 3]>,
}

#[derive(Debug, Serialize)]
struct RunRow<'a> {
    position: u32,
    round: u32,
    stack: usize,
    label: &'a str,
    load: &'a str,
    state: &'static str,
    counts: bool,
    reason: &'a str,
    log: String,
    requests: String,
    failed: String,
    rate: String,
    p99: String,
    cpu: String,
    generator_cpu: String,
    late: String,
}

const NOTHING: &str = "–";

/// The texts of the page.
pub fn contents(results: &Results) -> Contents<'_> {
    let verdict = verdict(results);
    let numbered = || results.stacks.iter().enumerate();
    let recommended = numbered().filter(|(_, stack)| verdict.recommended.contains(&stack.name));
    Contents {
        title: &results.title,
        description: &results.description,
        started_at: &results.started_at,
        duration: words::duration(results.duration_seconds),
        lab_version: &results.lab_version,
        command: words::command_line(&results.command),
        quick: results.quick,
        interrupted: results.outcome == Outcome::Interrupted,
        advice: recommended.map(|(number, stack)| stack_text(number, stack)).collect(),
        verdict,
        tables: load_tables(results),
        bars: &results.bars,
        has_charts: !results.summaries.is_empty() || !results.limits.is_empty(),
        stacks: numbered().map(|(number, stack)| stack_text(number, stack)).collect(),
        skipped: &results.skipped,
        limits: limits(results),
        checks: results
            .checks
            .iter()
            .map(|check| CheckRow { name: &check.name, state: check_state(check.state), finding: &check.finding })
            .collect(),
        machine: machine(results),
        method: method(results),
        method_notes: &results.method.notes,
        loads: loads(results),
        runs: results.runs.iter().map(|run| run_row(results, run)).collect(),
        lab: serde_json::to_string_pretty(&results.lab).unwrap_or_default(),
    }
}

fn stack_text(number: usize, stack: &Stack) -> StackText<'_> {
    let mut facts = Vec::new();
    let versions: Vec<_> = stack.versions.iter().map(|known| format!("{} {}", known.program, known.version)).collect();
    facts.push(("Versions", versions.join(", ")));
    let settings: Vec<_> = stack.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    facts.push(("Settings", settings.join(", ")));
    facts.push(("PHP processes", stack.workers.policy.clone()));
    if let Some(php) = &stack.php {
        let opcache = if php.opcache { "on" } else { "off" };
        facts.push(("PHP", format!("{} ({}), opcache {opcache}", php.version, php.sapi)));
        facts.push(("Extensions", php.extensions.join(", ")));
        facts.push(("php.ini digest", php.ini_digest.clone()));
    }
    if let Some(seconds) = stack.ready_after_seconds {
        facts.push(("First right answer", format!("{} s after the start", words::figure(seconds))));
    }
    facts.retain(|(_, value)| !value.is_empty());
    StackText {
        number,
        label: &stack.label,
        name: &stack.name,
        facts,
        files: stack
            .files
            .iter()
            .map(|file| FileText { path: &file.path, content: &file.content, is_configuration: file.is_configuration })
            .collect(),
        commands: stack
            .commands
            .iter()
            .map(|used| {
                let environment = used.environment.iter().map(|(name, value)| format!("{name}={value}"));
                let prefix: Vec<_> = environment.collect();
                let mut line = words::command_line(&used.command);
                if !prefix.is_empty() {
                    line = format!("env -i {} {line}", words::command_line(&prefix));
                }
                CommandText { purpose: &used.purpose, line }
            })
            .collect(),
        notes: &stack.notes,
    }
}

fn limits(results: &Results) -> Vec<LimitRow> {
    let row = |limit: &crate::results::Limit| {
        let number = results.stacks.iter().position(|stack| stack.name == limit.stack).unwrap_or(0);
        let probes = limit.probes.iter().map(|probe| {
            let end = match (probe.voided, probe.held) {
                (true, _) => "void",
                (false, true) => "held",
                (false, false) => "missed",
            };
            let time = probe.latency_ms.map_or(NOTHING.to_owned(), |time| format!("{} ms", words::figure(time)));
            let failed = words::percent(probe.error_share);
            format!("{}/s: {end} ({time}, {failed} % failed)", words::figure(probe.rate))
        });
        LimitRow {
            stack: number,
            label: results.stack(&limit.stack).map_or(&limit.stack, |stack| &stack.label).clone(),
            load: results.load(&limit.load).map_or(&limit.load, |load| &load.label).clone(),
            objective: words::objective(Some(limit.objective)),
            held: limit.held.map_or("none".to_owned(), words::figure),
            missed: limit.missed.map_or(NOTHING.to_owned(), words::figure),
            probes: probes.collect::<Vec<_>>().join("; "),
        }
    };
    results.limits.iter().map(row).collect()
}

fn machine(results: &Results) -> Vec<(&'static str, String)> {
    let machine = &results.machine;
    let virtual_ = if machine.is_virtual { ", virtual machine" } else { "" };
    vec![
        ("Processor", format!("{}, {}{virtual_}", machine.cpu, words::plural(u64::from(machine.cores), "core"))),
        ("Governor", machine.governor.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("Memory", format!("{} MiB", words::mebibytes(machine.memory_bytes as f64))),
        ("System", format!("{}, Linux {}", machine.system, machine.kernel)),
        ("Load before the lab", words::figure(machine.load_average)),
        ("net.core.somaxconn", words::count(u64::from(machine.somaxconn))),
        ("Open files", words::count(machine.open_files)),
        ("Local ports", words::count(u64::from(machine.local_ports))),
    ]
}

fn method(results: &Results) -> Vec<(&'static str, String)> {
    let method = &results.method;
    let cores = |cores: &[Core], none: &str| match cores {
        [] => none.to_owned(),
        cores => cores.iter().map(Core::to_string).collect::<Vec<_>>().join(", "),
    };
    vec![
        ("Rounds", words::count(u64::from(method.rounds))),
        ("Confidence of intervals", format!("{} %", words::percent(method.confidence))),
        ("Resamples of the bootstrap", words::count(u64::from(method.resamples))),
        ("Smallest difference that counts", format!("{} %", words::percent(method.smallest_difference))),
        ("Seed", method.seed.to_string()),
        ("Load generator", method.generator.clone()),
        ("Cores of the load generator", cores(&method.generator_cores, "those of the servers")),
        ("Cores of the servers", cores(&method.server_cores, "all")),
    ]
}

fn loads(results: &Results) -> Vec<LoadText> {
    let text = |load: &crate::results::LoadDescription| {
        let keep_alive = if load.keep_alive { "used again" } else { "one for each request" };
        let mut facts = vec![
            ("Connections", keep_alive.to_owned()),
            ("Time-out", words::duration(load.timeout_seconds)),
            ("Warm-up", words::duration(load.warm_up_seconds)),
            ("Objective", words::objective(load.objective)),
        ];
        if !load.autostop.is_empty() {
            facts.push(("Stops early at", load.autostop.join(", ")));
        }
        let total: u64 = load.targets.iter().map(|target| u64::from(target.weight)).sum();
        let request = |target: &crate::results::RequestDescription| {
            let share = f64::from(target.weight) / total.max(1) as f64;
            [
                format!("{} {}", target.method, target.path),
                format!("{} %", words::percent(share)),
                target.checks.join(", "),
            ]
        };
        LoadText {
            label: load.label.clone(),
            name: load.name.clone(),
            kind: words::load_kind(load),
            facts,
            requests: load.targets.iter().map(request).collect(),
        }
    };
    results.loads.iter().map(text).collect()
}

fn run_row<'a>(results: &'a Results, run: &'a Run) -> RunRow<'a> {
    let (state, reason, log) = match &run.state {
        RunState::Complete => ("complete", "", String::new()),
        RunState::Stopped { reason } => ("stopped", reason.as_str(), String::new()),
        RunState::Voided { reason } => ("void", reason.as_str(), String::new()),
        RunState::Failed { reason, log } => ("failed", reason.as_str(), log.join("\n")),
        RunState::Interrupted => ("interrupted", "", String::new()),
    };
    let p99 = run.latency.percentiles.map_or(NOTHING.to_owned(), |times| words::figure(times.p99));
    RunRow {
        position: run.position,
        round: run.round,
        stack: results.stacks.iter().position(|stack| stack.name == run.stack).unwrap_or(0),
        label: results.stack(&run.stack).map_or(&run.stack, |stack| &stack.label),
        load: results.load(&run.load).map_or(&run.load, |load| &load.label),
        state,
        counts: matches!(run.state, RunState::Complete | RunState::Stopped { .. }),
        reason,
        log,
        requests: words::count(run.requests),
        failed: words::count(run.failed),
        rate: words::figure(run.requests_per_second),
        p99,
        cpu: run.usage.as_ref().map_or(NOTHING.to_owned(), |usage| words::figure(usage.cpu_percent.median)),
        generator_cpu: words::figure(run.generator.cpu_percent.median),
        late: words::percent(run.generator.late_share),
    }
}

fn check_state(state: CheckState) -> &'static str {
    match state {
        CheckState::Passed => "passed",
        CheckState::Warning => "warning",
        CheckState::Failed => "failed",
    }
}
