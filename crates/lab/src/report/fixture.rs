//! Results for tests: the sample, and labs that are described by a few figures.

use crate::load::tally::{distribution, histogram, percentiles, record};
use crate::results::{LoadKind, Results, Run, RunState, UsageSpan};
use crate::statistics::Settings;
use crate::statistics::summarize::{Measured, comparisons, summaries, verdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// A stack under a load.
pub struct Figures {
    /// The stack's name; its label is the same in capitals.
    pub stack: &'static str,
    /// The load's name; one that begins with `rate` is open.
    pub load: &'static str,
    /// Requests per second, round by round.
    pub rates: Vec<f64>,
    /// The typical time of a response.
    pub milliseconds: f64,
    /// The share of failed requests.
    pub failed: f64,
    /// Memory in bytes.
    pub memory: f64,
    /// The state of all its runs.
    pub state: RunState,
}

/// results-sample.json.
pub fn sample() -> Results {
    Results::from_json(include_str!("../../testdata/results-sample.json")).expect("the sample is tested elsewhere")
}

/// A stack with these rates, 5 ms, no failures and 64 MiB.
pub fn figures(stack: &'static str, load: &'static str, rates: &[f64]) -> Figures {
    let (milliseconds, memory) = (5.0, 67_108_864.0);
    Figures { stack, load, rates: rates.to_vec(), milliseconds, failed: 0.0, memory, state: RunState::Complete }
}

/// The lab with these figures, with the statistics of a real one.
pub fn lab(cells: &[Figures]) -> Results {
    let mut results = sample();
    let example = results.runs[0].clone();
    let (stack, load) = (results.stacks[0].clone(), results.loads[0].clone());
    let mut runs = Vec::new();
    results.stacks.clear();
    results.loads.clear();
    for cell in cells {
        if results.stack(cell.stack).is_none() {
            let label = cell.stack.to_uppercase();
            results.stacks.push(crate::results::Stack { name: cell.stack.to_owned(), label, ..stack.clone() });
        }
        if results.load(cell.load).is_none() {
            let mut load = load.clone();
            load.name = cell.load.to_owned();
            load.label = format!("load {}", cell.load);
            if cell.load.starts_with("rate") {
                load.kind = LoadKind::Open {
                    schedule: "const(100, 10s)".to_owned(),
                    planned: 1000,
                    duration_seconds: 10.0,
                    peak_rate: 100.0,
                    connections: 100,
                };
            }
            results.loads.push(load);
        }
        let rounds = cell.rates.iter().enumerate();
        runs.extend(rounds.map(|(round, rate)| measured(cell, round as u32 + 1, *rate, &example)));
    }
    results.method.rounds = runs.iter().map(|measured: &Measured| measured.run.round).max().unwrap_or(1);
    let settings = Settings::default();
    results.quick = false;
    results.checks.clear();
    results.skipped.clear();
    results.limits.clear();
    results.runs = runs.iter().map(|measured| measured.run.clone()).collect();
    results.summaries = summaries(&results.stacks, &results.loads, &runs, &settings);
    results.comparisons = comparisons(&results.stacks, &results.loads, &runs, &settings);
    results.verdict = verdict(&results.stacks, &results.loads, &results.summaries, &results.comparisons, vec![]);
    results
}

fn measured(cell: &Figures, round: u32, rate: f64, example: &Run) -> Measured {
    let requests = (rate * 10.0) as u64;
    let failed = (requests as f64 * cell.failed).round() as u64;
    let mut latency = histogram(3);
    for number in 1..=100 {
        // The rounds differ a little.
        let time = cell.milliseconds * (0.5 + f64::from(number) / 100.0) * (1.0 + f64::from(round % 3) * 0.01);
        record(&mut latency, Duration::from_secs_f64(time / 1000.0));
    }
    let is_measured = matches!(cell.state, RunState::Complete | RunState::Stopped { .. });
    let mut run = Run {
        stack: cell.stack.to_owned(),
        load: cell.load.to_owned(),
        round,
        state: cell.state.clone(),
        requests,
        right: requests - failed,
        failed,
        requests_per_second: (requests - failed) as f64 / 10.0,
        errors: BTreeMap::from([("wrong_status".to_owned(), failed)]),
        latency: distribution(&latency),
        ..example.clone()
    };
    run.latency.percentiles = percentiles(&latency);
    if let Some(usage) = &mut run.usage {
        usage.requests_per_cpu_second = Some(run.requests_per_second);
        usage.pss_bytes =
            UsageSpan { median: cell.memory * (1.0 + f64::from(round % 3) * 0.001), max: cell.memory * 1.1 };
    }
    if !is_measured {
        run.seconds.clear();
    }
    Measured { run, latency }
}
