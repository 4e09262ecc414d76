//! How sure the verdict is, in a level and a sentence.

use crate::results::{CheckState, Outcome, Results, RunState};
use serde::Serialize;

/// How sure the verdict is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confidence {
    /// The level.
    pub level: ConfidenceLevel,
    /// The level, its reason, and a remedy.
    pub sentence: String,
}

/// The level of confidence, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceLevel {
    /// Five rounds or more, and nothing speaks against them.
    High,
    /// Three or four rounds, or something that the reader must know.
    Fair,
    /// Two rounds, an interrupted lab, shortened loads, or a check that failed.
    Low,
    /// Differences cannot be separated from noise.
    None,
}

/// The confidence in a verdict that recommends these stacks.
pub(super) fn confidence(results: &Results, recommended: &[String]) -> Confidence {
    let level = |level, sentence: String| Confidence { level, sentence };
    let rounds = results.method.rounds;
    if results.summaries.is_empty() {
        return match results.limits.iter().any(|limit| limit.held.is_some()) {
            true => level(ConfidenceLevel::Low, "low. A search tries each rate once.".to_owned()),
            false => level(ConfidenceLevel::None, "none. No run counts.".to_owned()),
        };
    }
    if rounds < 2 {
        return level(
            ConfidenceLevel::None,
            "none. One round cannot separate a difference from noise: run at least 3 rounds, better 5.".to_owned(),
        );
    }
    let percent = (results.method.confidence * 100.0).round();
    let method = format!("Each difference that is named holds at {percent} % confidence over {rounds} rounds");
    let mut against = Vec::new();
    if results.outcome == Outcome::Interrupted {
        against.push("the lab was interrupted");
    }
    if results.quick {
        against.push("--quick shortened the loads");
    }
    if results.checks.iter().any(|check| check.state == CheckState::Failed) {
        against.push("a check before the race failed");
    }
    if rounds < 3 {
        against.push("two rounds are few");
    }
    if !against.is_empty() {
        return level(ConfidenceLevel::Low, format!("low. {method}, but {}.", against.join(", and ")));
    }
    let loses_runs = |name: &String| {
        let is_lost = |state: &RunState| matches!(state, RunState::Voided { .. } | RunState::Failed { .. });
        results.runs.iter().any(|run| &run.stack == name && is_lost(&run.state))
    };
    if recommended.iter().any(loses_runs) {
        return level(ConfidenceLevel::Fair, format!("fair. {method}, but a recommended stack lost runs."));
    }
    if rounds < 5 {
        return level(ConfidenceLevel::Fair, format!("fair. {method}; 5 rounds would show smaller differences."));
    }
    level(ConfidenceLevel::High, format!("high. {method}."))
}
