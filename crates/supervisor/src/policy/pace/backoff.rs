//! The delay before the next attempt: none for the first failures, then one that doubles up to a bound.
//!
//! A process that ran for a while before it died starts again at once. A process that keeps dying early also does,
//! three times: a visitor who finds the one page that crashes must not slow down the others. Then the delay grows, up
//! to 5 s for a process that has never worked, and up to 0.5 s for one that has: its next start probably works again.

use std::time::Duration;

/// How the delay grows.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// How many failures in a row cost no delay.
    pub free: u32,
    /// The first delay. Each one after it is twice as long.
    pub first: Duration,
    /// The upper bound.
    pub longest: Duration,
}

/// For a process that died before it did any work.
const RESTART: Delays = Delays { free: 3, first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// For a process that died early, but had worked.
const RESTART_AFTER_WORK: Delays = Delays { longest: Duration::from_millis(500), ..RESTART };
/// A process that lived this long had started well.
const SETTLED: Duration = Duration::from_secs(10);

/// How many failures there were in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Counts a failure. Returns the delay before the next attempt.
    pub fn after_failure(&mut self, delays: &Delays) -> Duration {
        self.failures = self.failures.saturating_add(1);
        match self.failures.checked_sub(delays.free + 1) {
            Some(doublings) => delays.first.saturating_mul(1 << doublings.min(16)).min(delays.longest),
            None => Duration::ZERO,
        }
    }

    /// Counts the death of a process after `lifetime`. Returns the delay before it is started again.
    pub fn after_death(&mut self, lifetime: Duration, had_worked: bool) -> Duration {
        if lifetime >= SETTLED {
            *self = Backoff::default();
            return Duration::ZERO;
        }
        self.after_failure(if had_worked { &RESTART_AFTER_WORK } else { &RESTART })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_deaths_cost_no_delay_and_then_it_doubles_up_to_its_bound() {
        let table: [(bool, &[u64]); 2] = [
            (false, &[0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]),
            (true, &[0, 0, 0, 100, 200, 400, 500, 500]),
        ];
        for (had_worked, delays) in table {
            let mut backoff = Backoff::default();
            for delay in delays {
                assert_eq!(backoff.after_death(Duration::from_secs(1), had_worked), Duration::from_millis(*delay));
            }
        }
    }

    #[test]
    fn deaths_with_and_without_work_count_together() {
        let mut backoff = Backoff { failures: 8 };
        assert_eq!(backoff.after_death(Duration::from_secs(1), false), Duration::from_millis(3200));
    }

    #[test]
    fn a_long_life_resets_the_delay() {
        let mut backoff = Backoff { failures: u32::MAX };
        assert_eq!(backoff.after_death(Duration::ZERO, false), RESTART.longest);
        assert_eq!(backoff.after_death(SETTLED, false), Duration::ZERO);
        assert_eq!(backoff.after_death(Duration::ZERO, false), Duration::ZERO);
    }
}
