//! Two results of labs: what changed, with confidence. Pure, but for [`write_html`].
//!
//! Stacks and loads are matched by their names. Rounds of different labs do not belong together, therefore their means
//! are compared, and the interval is wider than within one lab. A difference of the machine or of a configuration is
//! listed, because it may be the reason; figures of a load that changed are not compared.
//!
//! - [`answer`]: the result of a comparison
//! - [`changes`]: figure by figure
//! - [`conditions`]: machine, versions, settings and files that differ
//! - [`text`]: for a terminal
//! - [`contents`]: for the page

mod answer;
mod changes;
mod conditions;
mod contents;
mod text;

pub use answer::ResultsComparison;
pub use changes::{Change, Judgement};
pub use conditions::Condition;

use crate::report::page;
use crate::report::words::{label, list, plural};
use crate::result_file;
use crate::results::Results;
use std::path::Path;

/// Compares two results: what changed from `before` to `after`.
pub fn compare(before: &Results, after: &Results) -> ResultsComparison {
    let changes = changes::changes(before, after);
    ResultsComparison {
        headline: headline(&changes),
        notes: notes(before, after, &changes),
        changes,
        conditions: conditions::conditions(before, after),
    }
}

/// The comparison as text for a terminal. Names from the results are as they are there.
pub fn to_text(comparison: &ResultsComparison) -> String {
    text::text(comparison)
}

/// The comparison as one HTML file; `before` and `after` are the names of the compared files.
///
/// # Errors
/// A bug in the template.
pub fn to_html(comparison: &ResultsComparison, before: &str, after: &str) -> Result<String, String> {
    page::page("comparison.html", &contents::contents(comparison, before, after), None::<&()>)
}

/// Writes the comparison as one HTML file.
///
/// # Errors
/// The file cannot be written. The message names it.
pub fn write_html(comparison: &ResultsComparison, before: &str, after: &str, path: &Path) -> Result<(), String> {
    result_file::write(path, to_html(comparison, before, after)?)
}

fn headline(changes: &[Change]) -> String {
    let count = |judgement: Judgement| changes.iter().filter(|change| change.judgement == judgement).count() as u64;
    let (better, worse, noise) = (count(Judgement::Better), count(Judgement::Worse), count(Judgement::Noise));
    let figures = plural(better + worse + noise, "figure");
    match (better, worse, noise) {
        _ if changes.is_empty() => {
            "Nothing can be compared: the two results have no stack under the same load.".to_owned()
        }
        (0, 0, 0) => "No statement: a single round cannot separate a difference from noise.".to_owned(),
        (0, 0, _) => format!("No difference was found in {figures}: what differs may be noise."),
        (_, 0, _) => format!("Better in {better} of {figures}, worse in none. The others may be noise."),
        (0, _, _) => format!("Worse in {worse} of {figures}, better in none. The others may be noise."),
        _ => format!("Better in {better} and worse in {worse} of {figures}. The others may be noise."),
    }
}

fn notes(before: &Results, after: &Results, changes: &[Change]) -> Vec<String> {
    let mut notes = Vec::new();
    let judged = changes.iter().filter(|change| change.judgement != Judgement::Unknown).count();
    if judged > 0 {
        let percent = (crate::statistics::interval::CONFIDENCE * 100.0).round();
        let by_chance = (judged as f64 * (100.0 - percent) / 100.0).ceil();
        notes.push(format!(
            "Each difference holds at {percent} % confidence. Among {}, chance alone makes up to about {by_chance:.0} look \
             like one.",
            plural(judged as u64, "comparison")
        ));
    }
    if judged < changes.len() && judged > 0 {
        notes.push(format!("{} have a single round on a side: no statement.", changes.len() - judged));
    }
    let recommended = |results: &Results| {
        let names = results.verdict.iter().flat_map(|verdict| &verdict.recommended);
        list(&names.map(|name| label(results, name).to_owned()).collect::<Vec<_>>())
    };
    let (first, second) = (recommended(before), recommended(after));
    if first != second && !first.is_empty() && !second.is_empty() {
        notes.push(format!("The verdict changed: it recommended {first}, now {second}."));
    }
    for (results, name) in [(before, "first"), (after, "second")] {
        if results.quick {
            notes.push(format!("The {name} result is one of --quick: its loads were shortened."));
        }
        if results.outcome == crate::results::Outcome::Interrupted {
            notes.push(format!("The lab of the {name} result was interrupted."));
        }
    }
    notes.extend(changes::unmatched(before, after));
    notes
}

#[cfg(test)]
mod tests;
