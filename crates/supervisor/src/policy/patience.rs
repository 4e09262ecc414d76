//! How long an application may take to start, and when an operator hears that it takes long. Pure.

use std::time::{Duration, Instant};

/// When a start has taken so long, it is said what is waited for.
const SAID_AFTER: Duration = Duration::from_secs(10);
/// A start takes no longer.
pub const LONGEST_START: Duration = Duration::from_secs(60);

/// The patience with one start.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    since: Instant,
    next: Option<Step>,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time to say what is waited for.
    Say,
    /// It has taken too long.
    GiveUp,
}

// === impl Patience ===

impl Patience {
    /// With a start at this time.
    pub fn new(since: Instant) -> Patience {
        Patience { since, next: Some(Step::Say) }
    }

    /// The step that is due. Each comes once.
    pub fn step(&mut self, now: Instant) -> Option<Step> {
        let step = self.next.filter(|_| self.deadline().is_some_and(|at| at <= now))?;
        self.next = match step {
            Step::Say => Some(Step::GiveUp),
            Step::GiveUp => None,
        };
        Some(step)
    }

    /// When the next one is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.next? {
            Step::Say => Some(self.since + SAID_AFTER),
            Step::GiveUp => Some(self.since + LONGEST_START),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_after_ten_seconds_and_over_after_sixty() {
        let since = Instant::now();
        let mut patience = Patience::new(since);
        let cases =
            [(0, None), (9, None), (10, Some(Step::Say)), (11, None), (59, None), (60, Some(Step::GiveUp)), (99, None)];
        for (seconds, expected) in cases {
            assert_eq!(patience.step(since + Duration::from_secs(seconds)), expected, "after {seconds} s");
        }
        assert_eq!(patience.deadline(), None);
    }
}
