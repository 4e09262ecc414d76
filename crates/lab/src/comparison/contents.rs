//! All texts of the comparison's page, as its template needs them.

use super::answer::ResultsComparison;
use super::changes::Judgement;
use super::text::{or_none, value, verdict};
use crate::report::words;
use serde::Serialize;

/// All texts of the page.
#[derive(Debug, Serialize)]
pub(super) struct Contents<'a> {
    before: &'a str,
    after: &'a str,
    headline: &'a str,
    /// The class of the box around the headline.
    class: &'static str,
    notes: &'a [String],
    loads: Vec<Load<'a>>,
    /// Names, values before, values after.
    conditions: Vec<[&'a str; 3]>,
}

#[derive(Debug, Serialize)]
struct Load<'a> {
    label: &'a str,
    rows: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    /// The stack's name in the first row of each stack.
    stack: Option<&'a str>,
    metric: &'static str,
    before: String,
    after: String,
    difference: String,
    verdict: String,
    class: &'static str,
    /// The interval's ends and the difference on a line from 0 to 200; 100 is "equal".
    places: Option<[String; 3]>,
}

/// The texts of the page.
pub(super) fn contents<'a>(comparison: &'a ResultsComparison, before: &'a str, after: &'a str) -> Contents<'a> {
    let mut loads: Vec<Load> = Vec::new();
    for change in &comparison.changes {
        if loads.last().is_none_or(|load| load.label != change.load) {
            loads.push(Load { label: &change.load, rows: Vec::new() });
        }
        let Some(load) = loads.last_mut() else { continue };
        let of_stack = |row: &&Row| row.stack == Some(change.stack.as_str());
        let is_first = !load.rows.iter().any(|row| of_stack(&row));
        load.rows.push(Row {
            stack: is_first.then_some(change.stack.as_str()),
            metric: words::metric_name(change.metric),
            before: value(change, change.before),
            after: value(change, change.after),
            difference: words::signed(change.metric, change.difference.ratio),
            verdict: verdict(change),
            class: match change.judgement {
                Judgement::Better => "better",
                Judgement::Worse => "worse",
                Judgement::Noise | Judgement::Unknown => "noise",
            },
            places: change
                .difference
                .interval
                .filter(|_| !change.metric.is_share())
                .map(|(low, high)| [low, change.difference.ratio, high].map(place)),
        });
    }
    let class = match (comparison.count(Judgement::Better), comparison.count(Judgement::Worse)) {
        (0, 0) => "level-fair",
        (_, 0) => "level-high",
        (0, _) => "level-none",
        _ => "level-low",
    };
    Contents {
        before,
        after,
        headline: &comparison.headline,
        class,
        notes: &comparison.notes,
        loads,
        conditions: comparison
            .conditions
            .iter()
            .map(|one| [one.name.as_str(), or_none(&one.before), or_none(&one.after)])
            .collect(),
    }
}

/// The place of a ratio: half is at 0, equal at 100, double at 200; what lies outside is at the end.
fn place(ratio: f64) -> String {
    format!("{:.1}", 100.0 + 100.0 * ratio.log2().clamp(-1.0, 1.0))
}
