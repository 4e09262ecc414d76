//! The figures of stacks and loads that both results have.

use crate::report::words;
use crate::results::{LoadDescription, LoadKind, Metric, Results};
use crate::statistics::{Difference, Settings, compare_unpaired};

/// One figure of a stack under a load, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The load's name for people.
    pub load: String,
    /// The stack's name for people.
    pub stack: String,
    /// The figure.
    pub metric: Metric,
    /// Its value in the first result.
    pub before: f64,
    /// Its value in the second result.
    pub after: f64,
    /// The second divided by the first; for shares, the difference.
    pub difference: Difference,
    /// The judgement of it.
    pub judgement: Judgement,
}

/// The judgement of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is better, and that is not noise.
    Better,
    /// It is worse, and that is not noise.
    Worse,
    /// It may be noise, or is too small to matter.
    Noise,
    /// A side has a single round.
    Unknown,
}

/// The figures that are compared under a closed load. The server sets the rate.
const OF_CLOSED_LOADS: [Metric; 7] = [
    Metric::RequestsPerSecond,
    Metric::RightShare,
    Metric::LatencyP50,
    Metric::LatencyP95,
    Metric::LatencyP99,
    Metric::RequestsPerCpuSecond,
    Metric::PssBytes,
];
/// The figures that are compared under an open load. The schedule sets the rate.
const OF_OPEN_LOADS: [Metric; 7] = [
    Metric::RightShare,
    Metric::LatencyP50,
    Metric::LatencyP95,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::RequestsPerCpuSecond,
    Metric::PssBytes,
];

/// The figures that both results have.
pub(super) fn changes(before: &Results, after: &Results) -> Vec<Change> {
    let settings = Settings {
        smallest_difference: before.method.smallest_difference.max(after.method.smallest_difference),
        ..Settings::default()
    };
    let loads = after.loads.iter().filter(|load| before.load(&load.name).is_some_and(|other| is_same(load, other)));
    let cells = loads.flat_map(|load| after.stacks.iter().map(move |stack| (load, stack)));
    let of_cell = |(load, stack): (&LoadDescription, &crate::results::Stack)| {
        let (first, second) = (before.summary(&stack.name, &load.name), after.summary(&stack.name, &load.name));
        let metrics = match load.kind {
            LoadKind::Open { .. } => OF_OPEN_LOADS,
            LoadKind::Closed { .. } => OF_CLOSED_LOADS,
        };
        let change = |metric: Metric| {
            let (first, second) = (first?.estimates.get(&metric)?, second?.estimates.get(&metric)?);
            let difference = compare_unpaired(&second.rounds, &first.rounds, metric, &settings)?;
            let judgement = match (difference.is_better, difference.interval) {
                (Some(true), _) => Judgement::Better,
                (Some(false), _) => Judgement::Worse,
                (None, Some(_)) => Judgement::Noise,
                (None, None) => Judgement::Unknown,
            };
            let (load, stack) = (load.label.clone(), stack.label.clone());
            Some(Change { load, stack, metric, before: first.value, after: second.value, difference, judgement })
        };
        metrics.into_iter().filter_map(change).collect::<Vec<_>>()
    };
    cells.flat_map(of_cell).collect()
}

/// Sentences about stacks and loads that only one result has, or that are not the same in both.
pub(super) fn unmatched(before: &Results, after: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    for (one, other, place) in [(before, after, "first"), (after, before, "second")] {
        let stacks = one.stacks.iter().filter(|stack| other.stack(&stack.name).is_none());
        let stacks: Vec<_> = stacks.map(|stack| stack.label.as_str()).collect();
        let loads = one.loads.iter().filter(|load| other.load(&load.name).is_none());
        let loads: Vec<_> = loads.map(|load| load.label.as_str()).collect();
        for (kind, names) in [("stack", stacks), ("load", loads)] {
            if !names.is_empty() {
                let kind = if names.len() == 1 { kind.to_owned() } else { format!("{kind}s") };
                sentences.push(format!("Only the {place} result has the {kind} {}.", words::list(&names)));
            }
        }
    }
    for load in &after.loads {
        if before.load(&load.name).is_some_and(|other| !is_same(load, other)) {
            sentences
                .push(format!("The load {} is another one in each result: its figures are not compared.", load.name));
        }
    }
    sentences
}

/// Whether two loads send the same requests at the same times.
fn is_same(a: &LoadDescription, b: &LoadDescription) -> bool {
    a.kind == b.kind && a.keep_alive == b.keep_alive && a.timeout_seconds == b.timeout_seconds && a.targets == b.targets
}
