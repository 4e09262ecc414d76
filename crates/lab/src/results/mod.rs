//! The results of a lab: all that was measured, as results.json holds it. Data only; the report and `howdah lab compare`
//! read it.
//!
//! Units: times of responses in milliseconds, durations in seconds, memory in bytes, CPU in percent of one core.
//! A reader rejects a file whose [`format`](Results::format) it does not know: fields are added without a new number,
//! but their meaning changes only with one.
//!
//! - [`conditions`]: the machine, the method, and the checks before the race
//! - [`stack`]: the servers, their versions and their configuration files; those that were skipped
//! - [`load`]: the loads
//! - [`run`]: one measurement: a stack under a load in one round
//! - [`distribution`]: times of responses
//! - [`summary`]: all rounds of a stack under a load, comparisons of stacks, and the verdict's inputs
//! - [`bar`]: the bars of the lab, and whether they are met
//! - [`limit`]: the highest rates that `howdah lab find-limit` found

pub mod bar;
pub mod conditions;
pub mod distribution;
pub mod limit;
pub mod load;
pub mod run;
pub mod stack;
pub mod summary;

pub use bar::Bar;
pub use conditions::{Check, CheckState, Core, Machine, Method};
pub use distribution::{Distribution, Percentiles};
pub use limit::{Limit, Objective, Probe};
pub use load::{LoadDescription, LoadKind, RequestDescription};
pub use run::{Generator, RoleUsage, Run, RunState, Second, Usage, UsageSpan};
pub use stack::{CommandUsed, PhpFacts, SkippedStack, Stack, StackFile, Version, Workers};
pub use summary::{Comparison, Estimate, LoadVerdict, Metric, Summary, Verdict};

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;

/// The content of results.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// The title of the lab.
    pub title: String,
    /// A text about the lab, from lab.json; empty without one.
    #[serde(default)]
    pub description: String,
    /// Whether the lab came to its end.
    pub outcome: Outcome,
    /// The start, in UTC: `2026-11-23T21:14:01Z`.
    pub started_at: String,
    /// The duration of the whole lab.
    pub duration_seconds: f64,
    /// The version of howdah that ran the lab.
    pub lab_version: String,
    /// The command line of the lab, word by word.
    pub command: Vec<String>,
    /// Whether the loads were shortened (`--quick`). Such results are a first impression.
    pub quick: bool,
    /// lab.json, as it was read.
    pub lab: serde_json::Value,
    /// The machine.
    pub machine: Machine,
    /// How it was measured.
    pub method: Method,
    /// The checks before the race: is the machine ready, are all stacks treated equally?
    pub checks: Vec<Check>,
    /// The loads, in the order of lab.json.
    pub loads: Vec<LoadDescription>,
    /// The stacks that were raced, in the order of lab.json.
    pub stacks: Vec<Stack>,
    /// The stacks of the lab that could not be raced, with the reason.
    pub skipped: Vec<SkippedStack>,
    /// All measurements, in the order in which they were made.
    pub runs: Vec<Run>,
    /// One for each stack and load with at least one complete run.
    pub summaries: Vec<Summary>,
    /// Each pair of stacks, for each load and metric that both have.
    pub comparisons: Vec<Comparison>,
    /// The verdict's inputs; `None` if no load has two stacks to compare.
    pub verdict: Option<Verdict>,
    /// The limits that `howdah lab find-limit` found; empty for `howdah lab run`.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// The bars of lab.json whose loads and stacks were chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<Bar>,
}

/// Whether a lab came to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Outcome {
    /// All rounds were run.
    Complete,
    /// Ctrl-C or a signal: the runs until then are there.
    Interrupted,
}

// === impl Results ===

impl Results {
    /// Reads results.json.
    ///
    /// # Errors
    /// The text is not JSON, is not the result of a lab, or has a newer format. The message names the reason.
    pub fn from_json(text: &str) -> Result<Results, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                return Err(format!(
                    "results of format {format}; this howdah reads format {FORMAT}: use the howdah that wrote them"
                ));
            }
            None => return Err("no results of a lab: the field \"format\" is missing".to_owned()),
        }
        serde_json::from_value(value).map_err(|error| format!("not the results of a lab: {error}"))
    }

    /// Reads the results at this path; a folder stands for its results.json.
    ///
    /// # Errors
    /// The file cannot be read, or [`Results::from_json`] rejects it. The message names the file.
    pub fn read(path: &Path) -> Result<Results, String> {
        let file = if path.is_dir() { path.join("results.json") } else { path.to_owned() };
        let text = std::fs::read_to_string(&file).map_err(|error| crate::reason::at(&file, &error))?;
        Results::from_json(&text).map_err(|reason| format!("{}: {reason}", file.display()))
    }

    /// The text of results.json.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("maps with text keys only");
        text.push('\n');
        text
    }

    /// The stack with this name.
    pub fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|stack| stack.name == name)
    }

    /// The load with this name.
    pub fn load(&self, name: &str) -> Option<&LoadDescription> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// The summary of a stack under a load.
    pub fn summary(&self, stack: &str, load: &str) -> Option<&Summary> {
        self.summaries.iter().find(|summary| summary.stack == stack && summary.load == load)
    }

    /// The runs of a stack under a load, whatever their state, in the order of the rounds.
    pub fn runs_of<'a>(&'a self, stack: &'a str, load: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.stack == stack && run.load == load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> &'static str {
        include_str!("../../testdata/results-sample.json")
    }

    #[test]
    fn the_sample_is_read_and_written_unchanged() {
        let results = Results::from_json(sample()).unwrap();
        assert_eq!(Results::from_json(&results.to_json()).unwrap(), results);
        let names = |value: &str| serde_json::from_str::<serde_json::Value>(value).unwrap();
        assert_eq!(names(&results.to_json()), names(sample()), "the sample has all fields, and no others");
    }

    #[test]
    fn the_samples_parts_refer_to_each_other() {
        let results = Results::from_json(sample()).unwrap();
        for run in &results.runs {
            assert!(results.stack(&run.stack).is_some() && results.load(&run.load).is_some(), "{run:?}");
        }
        for summary in &results.summaries {
            assert!(results.runs_of(&summary.stack, &summary.load).count() > 0, "{summary:?}");
        }
    }

    #[test]
    fn other_files_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("{", "not JSON"),
            ("{}", "\"format\" is missing"),
            (r#"{"format": 99}"#, "format 99"),
            (r#"{"format": 1}"#, "missing field"),
        ] {
            assert!(Results::from_json(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
