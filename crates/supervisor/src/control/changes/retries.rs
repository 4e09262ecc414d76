//! When applications that do not start are tried again: after a second, then less and less often, down to once a minute. One whose
//! processes of former starts cannot be killed is held back.

use crate::control::active::ActiveConfiguration;
use crate::generation::Generation;
use crate::generation::generations::Generations;
use crate::plan::application::Plan;
use crate::policy::pace::backoff::{Backoff, Delays};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The next attempt.
#[derive(Debug, Default)]
pub struct Retries {
    backoff: Backoff,
    at: Option<Instant>,
    /// The applications that the last attempt held back.
    held_back: BTreeSet<String>,
}

const DELAYS: Delays = Delays { free: 0, first: Duration::from_secs(1), longest: Duration::from_secs(60) };

/// An application is held back while it has this number of generations that have not exited.
const MAX_FORMER_STARTS: usize = 4;

// === impl Retries ===

impl Retries {
    /// When [`Self::is_due`] changes.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether an attempt begins now, if there are applications that do not start. Otherwise the next one is planned.
    pub fn is_due(&mut self, has_failures: bool, now: Instant) -> bool {
        if !has_failures {
            *self = Retries::default();
            return false;
        }
        let at = *self.at.get_or_insert_with(|| now + self.backoff.after_failure(&DELAYS));
        if at <= now {
            self.at = None;
        }
        at <= now
    }

    /// Takes the applications out of an attempt whose former processes have not exited. Returns why each of them does not start,
    /// which is the reason of its last start.
    pub fn hold_back(
        &mut self,
        plans: &mut Vec<Plan>,
        active: &ActiveConfiguration,
        generations: &Generations,
    ) -> BTreeMap<String, String> {
        let former = std::mem::take(&mut self.held_back);
        let is_held_back = |plan: &mut Plan| {
            let of_plan = |generation: &&Generation| generation.name() == plan.name();
            let former = generations.iter().filter(of_plan).filter(|former| !active.has_generation(former.id()));
            former.count() >= MAX_FORMER_STARTS
        };
        let reason_of = |plan: Plan| {
            let name = plan.name().to_owned();
            if !former.contains(&name) {
                tracing::error!(
                    "the application {name:?} is not started again while the processes of {MAX_FORMER_STARTS} former starts, which \
                     were killed, have not exited; does a file system hang?"
                );
            }
            let reason = active.failures.get(&name).cloned();
            (name, reason.unwrap_or_else(|| "its processes do not exit".to_owned()))
        };
        let reasons: BTreeMap<_, _> = plans.extract_if(.., is_held_back).map(reason_of).collect();
        self.held_back = reasons.keys().cloned().collect();
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_until_all_applications_run() {
        let mut now = Instant::now();
        let mut retries = Retries::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!retries.is_due(true, now));
            assert_eq!(retries.at(), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert!(retries.is_due(true, now), "after {seconds} s");
        }
        assert!(!retries.is_due(false, now));
        assert_eq!(retries.at(), None);
        assert!(!retries.is_due(true, now));
        assert_eq!(retries.at(), Some(now + Duration::from_secs(1)));
    }
}
