//! When a process that died is started again. Pure.
//!
//! A process that lived for a while is started again at once. One that keeps dying young is, too, a few times: a
//! visitor who finds the one page that crashes shall not slow down the others. Only then the waits grow: to some seconds
//! for what has never come to work, to half a second for what did and may do so again.

use std::time::Duration;

/// A process that lived this long had started well.
const SETTLED: Duration = Duration::from_secs(10);
/// So many deaths in a row cost no wait.
const FREE_DEATHS: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Of one that had come to work.
const LONGEST_DELAY_OF_WORK: Duration = Duration::from_millis(500);

/// How often a process has died young in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    deaths: u32,
}

// === impl Backoff ===

impl Backoff {
    /// It died after this time, before or after it had come to work: how long to wait before it is started again.
    pub fn after_death(&mut self, lived: Duration, had_worked: bool) -> Duration {
        if lived >= SETTLED {
            self.deaths = 0;
            return Duration::ZERO;
        }
        self.deaths = self.deaths.saturating_add(1);
        let Some(doublings) = self.deaths.checked_sub(FREE_DEATHS + 1) else {
            return Duration::ZERO;
        };
        let longest = if had_worked { LONGEST_DELAY_OF_WORK } else { LONGEST_DELAY };
        FIRST_DELAY.saturating_mul(1 << doublings.min(16)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_deaths_are_free_then_the_waits_double_up_to_five_seconds() {
        let mut backoff = Backoff::default();
        for expected in [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(backoff.after_death(Duration::from_secs(1), false), Duration::from_millis(expected));
        }
    }

    #[test]
    fn who_had_come_to_work_is_missed() {
        let mut backoff = Backoff::default();
        for expected in [0, 0, 0, 100, 200, 400, 500, 500] {
            assert_eq!(backoff.after_death(Duration::from_secs(1), true), Duration::from_millis(expected));
        }
        assert_eq!(backoff.after_death(Duration::from_secs(1), false), Duration::from_millis(3200));
    }

    #[test]
    fn a_long_life_makes_up_for_all_deaths_before() {
        let mut backoff = Backoff { deaths: u32::MAX };
        assert_eq!(backoff.after_death(Duration::ZERO, false), LONGEST_DELAY);
        assert_eq!(backoff.after_death(SETTLED, false), Duration::ZERO);
        assert_eq!(backoff.after_death(Duration::ZERO, false), Duration::ZERO);
    }
}
