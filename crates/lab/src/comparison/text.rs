//! The comparison for a terminal.

use super::answer::ResultsComparison;
use super::changes::{Change, Judgement};
use crate::report::words;
use std::fmt::Write;

/// The comparison as text.
pub(super) fn text(comparison: &ResultsComparison) -> String {
    let mut text = format!("{}\n", comparison.headline);
    for note in &comparison.notes {
        let _ = writeln!(text, "{note}");
    }
    let mut before: Option<&Change> = None;
    for change in &comparison.changes {
        let is_new_load = before.is_none_or(|other| other.load != change.load);
        if is_new_load {
            let _ = writeln!(text, "\n{}", change.load);
        }
        if is_new_load || before.is_none_or(|other| other.stack != change.stack) {
            let _ = writeln!(text, "  {}", change.stack);
        }
        let values = format!("{} -> {}", value(change, change.before), value(change, change.after));
        let _ = writeln!(
            text,
            "    {:<24} {values:<24} {:<8} {}",
            words::metric_name(change.metric),
            words::signed(change.metric, change.difference.ratio),
            verdict(change)
        );
        before = Some(change);
    }
    if !comparison.conditions.is_empty() {
        text.push_str("\nWhat else differs\n");
    }
    for condition in &comparison.conditions {
        let _ = writeln!(text, "  {}: {} -> {}", condition.name, or_none(&condition.before), or_none(&condition.after));
    }
    text
}

/// A value of a change, without its unit where the metric's name has it.
pub(super) fn value(change: &Change, value: f64) -> String {
    use crate::results::Metric;
    match change.metric {
        Metric::RequestsPerSecond | Metric::RequestsPerCpuSecond => words::figure(value),
        metric => words::value(metric, value),
    }
}

/// The judgement and its interval.
pub(super) fn verdict(change: &Change) -> String {
    let bounds = change.difference.interval.map(|bounds| words::interval(change.metric, bounds));
    let bounds = bounds.map(|bounds| format!(" ({bounds})")).unwrap_or_default();
    match change.judgement {
        Judgement::Better => format!("better{bounds}"),
        Judgement::Worse => format!("worse{bounds}"),
        Judgement::Noise => format!("noise{bounds}"),
        Judgement::Unknown => "no statement: a single round".to_owned(),
    }
}

/// A value that is not there.
pub(super) fn or_none(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}
