//! How long an application may take to boot: a warning in the log after a while, and a failure at the end.
//!
//! The warning is for the operator of an application whose preloading is slow. The failure ends a change that would
//! otherwise never be answered. A process that is killed may not exit for as long as a file system does not answer it:
//! nothing waits for that.

use howdah_protocol::test_time::divided;
use std::time::{Duration, Instant};

/// After this time the log names the application that is waited for.
const WARN_AFTER: Duration = Duration::from_secs(10);
/// After this time the start has failed.
const FAIL_AFTER: Duration = Duration::from_secs(60);
/// After this time more, a process that was killed is given up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// How long a start may take.
pub fn timeout() -> Duration {
    divided(FAIL_AFTER)
}

/// The timeout of one start.
#[derive(Clone, Copy, Debug)]
pub struct BootTimeout {
    started: Instant,
    next: Option<BootStep>,
    /// When it was killed before its time.
    killed: Option<Instant>,
}

/// A step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// Log a warning.
    Warn,
    /// The start has failed: kill the process.
    Fail,
    /// The process has not exited: go on without it.
    GiveUp,
}

// === impl BootTimeout ===

impl BootTimeout {
    /// The timeout of a start at this time.
    pub fn new(started: Instant) -> BootTimeout {
        BootTimeout { started, next: Some(BootStep::Warn), killed: None }
    }

    /// The process is killed now: it cannot start.
    pub fn on_killed(&mut self, now: Instant) {
        (self.next, self.killed) = (Some(BootStep::GiveUp), Some(now));
    }

    /// Whether all steps were due.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// The step that is due. Each is returned once.
    pub fn step(&mut self, now: Instant) -> Option<BootStep> {
        let step = self.next.filter(|_| self.deadline().is_some_and(|at| at <= now))?;
        self.next = match step {
            BootStep::Warn => Some(BootStep::Fail),
            BootStep::Fail => Some(BootStep::GiveUp),
            BootStep::GiveUp => None,
        };
        Some(step)
    }

    /// When the next step is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.next? {
            BootStep::Warn => Some(self.started + divided(WARN_AFTER)),
            BootStep::Fail => Some(self.started + timeout()),
            BootStep::GiveUp => Some(self.killed.unwrap_or(self.started + timeout()) + divided(GIVE_UP_AFTER)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_warned_about_fails_and_is_given_up() {
        let started = Instant::now();
        let mut timeout = BootTimeout::new(started);
        let table = [
            (0, None),
            (9, None),
            (10, Some(BootStep::Warn)),
            (11, None),
            (59, None),
            (60, Some(BootStep::Fail)),
            (64, None),
            (65, Some(BootStep::GiveUp)),
            (99, None),
        ];
        for (seconds, expected) in table {
            assert_eq!(timeout.step(started + Duration::from_secs(seconds)), expected, "after {seconds} s");
        }
        assert_eq!((timeout.deadline(), timeout.is_over()), (None, true));
        let mut timeout = BootTimeout::new(started);
        timeout.on_killed(started + Duration::from_secs(1));
        assert_eq!(timeout.deadline(), Some(started + Duration::from_secs(6)));
    }
}
