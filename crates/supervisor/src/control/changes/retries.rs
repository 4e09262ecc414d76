//! When applications that do not start are tried again: after a second, then less and less often, down to once a minute.

use crate::policy::pace::backoff::{Backoff, Delays};
use std::time::{Duration, Instant};

/// The next attempt.
#[derive(Debug, Default)]
pub struct Retries {
    backoff: Backoff,
    at: Option<Instant>,
}

const DELAYS: Delays = Delays { free: 0, first: Duration::from_secs(1), longest: Duration::from_secs(60) };

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
