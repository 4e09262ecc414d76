//! The tables of the report, as texts for its template.

use super::pairs;
use super::words;
use crate::results::{LoadVerdict, Metric, Percentiles, Results, RunState, Summary, UsageSpan};
use crate::statistics::bars::{Figure, RoleFigure};
use serde::Serialize;
use std::collections::BTreeSet;

/// All stacks under one load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadTable {
    /// The load's name.
    pub name: String,
    /// The load's name for people.
    pub label: String,
    /// When requests are sent.
    pub kind: String,
    /// The objective.
    pub objective: String,
    /// The metric that decides.
    pub metric: &'static str,
    /// One for each raced stack, the best first.
    pub rows: Vec<Row>,
    /// The cost of a request by the job of the processes; empty if nothing was measured by job.
    pub costs: Vec<CostRow>,
}

/// The processes of a stack with one job, under one load. `–` stands for a missing value.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// The stack's number.
    pub stack: usize,
    /// The stack's name for people.
    pub label: String,
    /// `front`, `php`, or `all`
    pub role: String,
    /// CPU time per right request, in microseconds.
    pub cpu: String,
    /// Context switches per right request.
    pub switches: String,
    /// System calls per right request.
    pub system_calls: String,
    /// Thousands of instructions per right request.
    pub instructions: String,
    /// Processes.
    pub processes: String,
    /// Memory in MiB.
    pub memory: String,
}

/// One stack under one load. `–` stands for a missing value.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The stack's number, which chooses its colour and its mark.
    pub stack: usize,
    /// The stack's name for people.
    pub label: String,
    /// How it compares with the best: the class of the cell.
    pub standing: Standing,
    /// How it compares with the best, in words.
    pub standing_text: String,
    /// The 50th, 80th, 90th, 95th, 99th and 99.9th percentile and the slowest response, in milliseconds.
    pub times: Vec<String>,
    /// The share of right requests in percent.
    pub ok_percent: String,
    /// Right requests.
    pub ok_count: String,
    /// Failed requests with their kinds.
    pub failed: String,
    /// Whether a request failed.
    pub has_failures: bool,
    /// Right requests per second, and its interval.
    pub rate: String,
    /// Right requests per second of CPU time, and its interval.
    pub rate_per_cpu: String,
    /// CPU: median and maximum in percent of one core.
    pub cpu: (String, String),
    /// Memory: median and maximum in MiB.
    pub memory: (String, String),
    /// Threads: the maximum.
    pub threads: String,
    /// Context switches per request.
    pub switches: String,
    /// The runs that count, of all.
    pub runs: String,
}

/// How a stack compares with the best under a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It leads alone.
    Best,
    /// No difference from the best was found.
    Shared,
    /// It is worse than the best.
    Worse,
    /// It does not meet the objective.
    Ineligible,
    /// It has no run that counts.
    Missing,
    /// There is nothing to compare with.
    Alone,
}

const NOTHING: &str = "–";

/// A table for each load.
pub fn load_tables(results: &Results) -> Vec<LoadTable> {
    let table = |load: &crate::results::LoadDescription| {
        let verdict = results.verdict.iter().flat_map(|verdict| &verdict.loads).find(|judged| judged.load == load.name);
        let place = |name: &str| {
            let eligible = verdict.and_then(|verdict| verdict.eligible.iter().position(|other| other == name));
            let has_summary = results.summary(name, &load.name).is_some();
            (eligible.unwrap_or(usize::MAX), !has_summary)
        };
        let mut rows: Vec<_> = results.stacks.iter().enumerate().collect();
        rows.sort_by_key(|(number, stack)| (place(&stack.name), *number));
        let costs = rows.iter().flat_map(|(number, stack)| costs(results, *number, &stack.name, &load.name)).collect();
        LoadTable {
            name: load.name.clone(),
            label: load.label.clone(),
            kind: words::load_kind(load),
            objective: words::objective(load.objective),
            metric: verdict.map_or("", |verdict| words::metric_name(verdict.metric)),
            rows: rows.into_iter().map(|(number, _)| row(results, &load.name, verdict, number)).collect(),
            costs,
        }
    };
    results.loads.iter().map(table).filter(|table| results.runs.iter().any(|run| run.load == table.name)).collect()
}

fn row(results: &Results, load: &str, verdict: Option<&LoadVerdict>, number: usize) -> Row {
    let stack = &results.stacks[number];
    let runs: Vec<_> = results.runs_of(&stack.name, load).collect();
    let summary = results.summary(&stack.name, load);
    let (standing, standing_text) = standing(results, load, verdict, &stack.name, summary);
    let times = summary.and_then(|summary| summary.latency.percentiles).map(times);
    let span = |span: Option<UsageSpan>, text: fn(f64) -> String| {
        span.map_or((NOTHING.to_owned(), NOTHING.to_owned()), |span| (text(span.median), text(span.max)))
    };
    let estimate = |metric: Metric| {
        let estimate = summary.and_then(|summary| summary.estimates.get(&metric));
        estimate.map_or(NOTHING.to_owned(), |estimate| match estimate.interval {
            Some((low, high)) => {
                format!("{} ({}–{})", words::figure(estimate.value), words::figure(low), words::figure(high))
            }
            None => words::figure(estimate.value),
        })
    };
    let text = |of: &dyn Fn(&Summary) -> String| summary.map_or(NOTHING.to_owned(), of);
    Row {
        stack: number,
        label: stack.label.clone(),
        standing,
        standing_text,
        times: times.unwrap_or_else(|| vec![NOTHING.to_owned(); 7]),
        ok_percent: text(&|summary| words::percent(summary.right_share)),
        ok_count: text(&|summary| words::count(summary.right)),
        failed: text(&failures),
        has_failures: summary.is_some_and(|summary| summary.right < summary.requests),
        rate: estimate(Metric::RequestsPerSecond),
        rate_per_cpu: estimate(Metric::RequestsPerCpuSecond),
        cpu: span(summary.and_then(|summary| summary.cpu_percent), words::figure),
        memory: span(summary.and_then(|summary| summary.pss_bytes), words::mebibytes),
        threads: span(summary.and_then(|summary| summary.threads), words::figure).1,
        switches: text(&|summary| summary.switches_per_request.map_or(NOTHING.to_owned(), words::figure)),
        runs: format!("{} of {}", summary.map_or(0, |summary| summary.runs), runs.len()),
    }
}

/// The cost of a request, by the jobs of a stack and of the whole stack: the medians of the rounds.
pub fn costs(results: &Results, number: usize, stack: &str, load: &str) -> Vec<CostRow> {
    let runs: Vec<_> = results.runs.iter().collect();
    let roles = results.runs_of(stack, load).filter_map(|run| run.usage.as_ref()).flat_map(|usage| usage.roles.keys());
    let roles: BTreeSet<_> = roles.collect();
    if roles.is_empty() {
        return Vec::new();
    }
    let text = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), words::figure);
    let label = results.stacks[number].label.as_str();
    let of_role = |role: &&String| {
        let figure = |figure: RoleFigure| Figure::Role((*role).clone(), figure).of(&runs, stack, load);
        CostRow {
            stack: number,
            label: label.to_owned(),
            role: (*role).clone(),
            cpu: text(figure(RoleFigure::CpuMicroseconds)),
            switches: text(figure(RoleFigure::Switches)),
            system_calls: text(figure(RoleFigure::SystemCalls)),
            instructions: text(figure(RoleFigure::Instructions).map(|count| count / 1000.0)),
            processes: text(figure(RoleFigure::Processes)),
            memory: figure(RoleFigure::PssBytes).map_or_else(|| NOTHING.to_owned(), words::mebibytes),
        }
    };
    let summary = results.summary(stack, load);
    let all = CostRow {
        stack: number,
        label: label.to_owned(),
        role: "all".to_owned(),
        cpu: text(Figure::CpuMicroseconds.of(&runs, stack, load)),
        switches: text(summary.and_then(|summary| summary.switches_per_request)),
        system_calls: NOTHING.to_owned(),
        instructions: NOTHING.to_owned(),
        processes: NOTHING.to_owned(),
        memory: summary
            .and_then(|summary| summary.pss_bytes)
            .map_or_else(|| NOTHING.to_owned(), |it| words::mebibytes(it.median)),
    };
    roles.iter().map(of_role).chain([all]).collect()
}

fn times(percentiles: Percentiles) -> Vec<String> {
    let Percentiles { p50, p80, p90, p95, p99, p999, max, .. } = percentiles;
    [p50, p80, p90, p95, p99, p999, max].map(words::figure).to_vec()
}

/// `13: wrong status 13`
fn failures(summary: &Summary) -> String {
    let failed = summary.requests.saturating_sub(summary.right);
    let kinds = summary.errors.iter().filter(|(_, count)| **count > 0);
    let kinds: Vec<_> =
        kinds.map(|(kind, number)| format!("{} {}", kind.replace('_', " "), words::count(*number))).collect();
    match (failed, kinds.as_slice()) {
        (0, _) => "0".to_owned(),
        (failed, []) => words::count(failed),
        (failed, kinds) => format!("{}: {}", words::count(failed), kinds.join(", ")),
    }
}

fn standing(
    results: &Results,
    load: &str,
    verdict: Option<&LoadVerdict>,
    stack: &str,
    summary: Option<&Summary>,
) -> (Standing, String) {
    if summary.is_none() {
        let reason = results.runs_of(stack, load).find_map(|run| match &run.state {
            RunState::Failed { reason, .. } => Some(format!("failed: {reason}")),
            RunState::Voided { reason } => Some(format!("void: {reason}")),
            RunState::Interrupted => Some("interrupted".to_owned()),
            RunState::Complete | RunState::Stopped { .. } => None,
        });
        return (Standing::Missing, reason.unwrap_or_else(|| "not measured".to_owned()));
    }
    let Some(verdict) = verdict else { return (Standing::Alone, "nothing to compare with".to_owned()) };
    if let Some(reason) = verdict.ineligible.get(stack) {
        return (Standing::Ineligible, format!("does not qualify: {reason}"));
    }
    let best = verdict.eligible.first().map_or("", String::as_str);
    let is_leader = verdict.leaders.iter().any(|leader| leader == stack);
    let difference = pairs::difference(results, load, verdict.metric, stack, best).map(|pair| {
        let bounds = pair.interval.map(|bounds| format!(" ({})", words::interval(verdict.metric, bounds)));
        format!("{}{}", words::signed(verdict.metric, pair.ratio), bounds.unwrap_or_default())
    });
    let difference = difference.unwrap_or_default();
    match (stack == best, is_leader) {
        (true, _) if verdict.leaders.len() < 2 => (Standing::Best, "best".to_owned()),
        (true, _) => (Standing::Shared, "shares the lead".to_owned()),
        (false, true) if results.method.rounds < 2 => {
            (Standing::Shared, format!("one round, no statement: {difference}"))
        }
        (false, true) => (Standing::Shared, format!("shares the lead; noise: {difference}")),
        (false, false) => (Standing::Worse, difference),
    }
}
