//! The verdict in words: which stack to run for this application, at which load, and with which confidence. Pure.
//!
//! The statistics are [`Verdict`](crate::results::Verdict)'s; this module turns them into sentences. A difference that
//! may be noise is called noise, and a result that cannot be had is called so, with the reason.

mod confidence;
mod of_load;
mod of_search;

pub use confidence::{Confidence, ConfidenceLevel};
pub use of_load::LoadFindings;

use super::words::{label, list, plural};
use crate::results::{Outcome, Results, RunState};
use serde::Serialize;
use std::collections::BTreeSet;

/// The verdict in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerdictText {
    /// The verdict in a sentence or two.
    pub headline: String,
    /// The names of the stacks to run; several if no difference between them was found, none if no stack will do.
    pub recommended: Vec<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Load by load, in the order of lab.json.
    pub loads: Vec<LoadFindings>,
    /// The limits that were found, a sentence each.
    pub limits: Vec<String>,
    /// Sentences that limit the verdict.
    pub caveats: Vec<String>,
}

/// The verdict in words.
pub fn verdict(results: &Results) -> VerdictText {
    let limits = of_search::sentences(results);
    let (headline, recommended) = headline(results);
    VerdictText {
        headline,
        confidence: confidence::confidence(results, &recommended),
        recommended,
        loads: of_load::findings(results),
        limits,
        caveats: caveats(results),
    }
}

// === impl VerdictText ===

impl VerdictText {
    /// The verdict as text for a terminal, without control characters of its own. Labels are as they are in lab.json.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\nConfidence: {}\n", self.headline, self.confidence.sentence);
        for load in &self.loads {
            text.push_str(&format!("\n{}\n", load.label));
            load.sentences.iter().for_each(|sentence| text.push_str(&format!("  {sentence}\n")));
        }
        for (title, sentences) in [("Limits", &self.limits), ("Note", &self.caveats)] {
            if !sentences.is_empty() {
                text.push_str(&format!("\n{title}\n"));
                sentences.iter().for_each(|sentence| text.push_str(&format!("  {sentence}\n")));
            }
        }
        text
    }
}

/// The first sentence, and the stacks that it recommends.
fn headline(results: &Results) -> (String, Vec<String>) {
    let measured: BTreeSet<&str> = results.summaries.iter().map(|summary| summary.stack.as_str()).collect();
    if measured.is_empty() {
        return match of_search::headline(results) {
            Some(found) => found,
            None => (nothing_counts(results), Vec::new()),
        };
    }
    let Some(verdict) = &results.verdict else {
        return (alone(results, &measured), Vec::new());
    };
    let recommended = &verdict.recommended;
    let labels: Vec<_> = recommended.iter().map(|name| label(results, name)).collect();
    let loads = verdict.loads.len();
    let led = |name: &str| -> Vec<_> {
        verdict.loads.iter().filter(|load| load.leaders.iter().any(|leader| leader == name)).collect()
    };
    let text = match recommended.as_slice() {
        [] => "No stack can be recommended: none met the objective under any load.".to_owned(),
        [name] if measured.len() == 1 => {
            format!("Run {}: it is the only stack with a result.", label(results, name))
        }
        [name] => {
            let alone = led(name).iter().filter(|load| load.leaders.len() == 1).count();
            let reason = match (led(name).len(), alone) {
                (1, 1) if loads == 1 => of_load::lead(results, &verdict.loads[0]),
                (led, alone) if led == loads && alone == loads => format!("it leads under all {loads} loads"),
                (led, _) if led == loads && loads > 1 => {
                    format!("it leads, or shares the lead, under all {loads} loads")
                }
                (led, alone) if led == alone => format!("it leads under {led} of {loads} loads"),
                (led, _) => format!("it leads, or shares the lead, under {led} of {loads} loads"),
            };
            format!("Run {}: {reason}.", label(results, name))
        }
        [_, ..] if results.method.rounds < 2 => format!(
            "No stack can be preferred: a single round cannot separate a difference from noise. {} met the objective.",
            list(&labels)
        ),
        [first, ..] => {
            let count = led(first).len();
            let scope = match (count, loads) {
                (_, 1) => String::new(),
                (count, loads) if count == loads => " under any load".to_owned(),
                (count, loads) => format!(" over all loads: each leads, or shares the lead, under {count} of {loads}"),
            };
            format!(
                "Run {}: no stack is better than the others{scope}. Choose by memory, by CPU, or by what you know.",
                labels.join(" or ")
            )
        }
    };
    (text, recommended.clone())
}

/// One stack was raced: there is nothing to compare.
fn alone(results: &Results, measured: &BTreeSet<&str>) -> String {
    let labels: Vec<_> = measured.iter().map(|name| label(results, name)).collect();
    match labels.as_slice() {
        [label] => format!("{label} was measured alone: there is no other stack to compare it with."),
        labels => format!("{} were measured, but no load has two of them to compare.", list(labels)),
    }
}

/// No run counts.
fn nothing_counts(results: &Results) -> String {
    let number = |is_it: fn(&RunState) -> bool| results.runs.iter().filter(|run| is_it(&run.state)).count();
    let voided = number(|state| matches!(state, RunState::Voided { .. }));
    let failed = number(|state| matches!(state, RunState::Failed { .. }));
    match (results.runs.len(), voided, failed) {
        (0, _, _) if results.stacks.is_empty() => "No verdict: no stack of this lab could be started.".to_owned(),
        (0, _, _) => "No verdict: nothing was measured.".to_owned(),
        (runs, voided, 0) if runs == voided => "No verdict: every run is void, because the load generator was the \
            bottleneck. Give it a core of its own, or lower the load."
            .to_owned(),
        (runs, 0, failed) if runs == failed => {
            "No stack can be recommended: each one failed before its load. Their logs are below.".to_owned()
        }
        (_, voided, failed) => format!(
            "No verdict: no run counts. {} failed, {} void because of the load generator, and the others were \
             interrupted.",
            plural(failed as u64, "run"),
            if voided == 1 { "1 is".to_owned() } else { format!("{voided} are") },
        ),
    }
}

fn caveats(results: &Results) -> Vec<String> {
    let mut caveats = Vec::new();
    if results.outcome == Outcome::Interrupted {
        caveats.push("The lab was interrupted: the runs until then are here, the others are missing.".to_owned());
    }
    caveats.extend(results.verdict.iter().flat_map(|verdict| verdict.caveats.clone()));
    let voided: Vec<_> = results.runs.iter().filter(|run| matches!(run.state, RunState::Voided { .. })).collect();
    if !voided.is_empty() {
        let stacks: BTreeSet<_> = voided.iter().map(|run| label(results, &run.stack)).collect();
        let stacks: Vec<_> = stacks.into_iter().collect();
        let verb = if voided.len() == 1 { "is void and does" } else { "are void and do" };
        caveats.push(format!(
            "{} of {} {verb} not count, because the load generator was the bottleneck: {}.",
            voided.len(),
            plural(results.runs.len() as u64, "run"),
            list(&stacks)
        ));
    }
    let skipped: Vec<_> = results.skipped.iter().map(|skipped| skipped.label.as_str()).collect();
    if !skipped.is_empty() {
        caveats.push(format!("Not raced: {}. The reasons are below.", list(&skipped)));
    }
    caveats
}

#[cfg(test)]
mod tests;
