//! Whether a child process still answers: it gets a probe at an interval, and is lost after too many without an answer.
//!
//! A router that waits for a dead network file system, or a prototype that hangs in code of the application, serves
//! nothing and does not exit by itself: this finds it.
//!
//! The probes are counted, not timed: if the supervisor itself was stopped for a minute, it must not kill its children
//! afterwards. A machine that swaps is slow, so several probes may stay without an answer.

use howdah_protocol::test_time::divided;
use std::time::{Duration, Instant};

/// The time between two probes.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many probes may stay without an answer.
pub const MAX_UNANSWERED: u32 = 6;

/// The time between two probes.
pub fn interval() -> Duration {
    divided(INTERVAL)
}

/// After about this time a child that does not answer is lost.
pub fn timeout() -> Duration {
    interval() * MAX_UNANSWERED
}

/// The probes of one child.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    next: Instant,
    unanswered: u32,
}

/// The action when a probe is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Send the next probe.
    Probe,
    /// The child does not answer any more.
    Lost,
}

// === impl Heartbeat ===

impl Heartbeat {
    /// The probes of a child that starts now.
    pub fn new(now: Instant) -> Heartbeat {
        Heartbeat { next: now + interval(), unanswered: 0 }
    }

    /// When the next probe is due.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Whether a probe is due.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// A probe was due.
    pub fn beat(&mut self, now: Instant) -> Beat {
        self.next = now + interval();
        if self.unanswered >= MAX_UNANSWERED {
            return Beat::Lost;
        }
        self.unanswered += 1;
        Beat::Probe
    }

    /// A probe was due, but the child cannot answer one now: an operator has stopped it.
    pub fn skip(&mut self, now: Instant) {
        self.next = now + interval();
    }

    /// The child has answered.
    pub fn answered(&mut self) {
        self.unanswered = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_lost_after_six_probes_without_an_answer() {
        // The probe after which the child answers, or is skipped as stopped; the number of the one that finds it lost.
        let table = [(None, None, 7), (Some(6), None, 13), (Some(1), None, 8), (None, Some(3), 8)];
        for (answered_after, skipped, lost_at) in table {
            let start = Instant::now();
            let mut heartbeat = Heartbeat::new(start);
            for number in 1..=lost_at {
                let now = start + interval() * number;
                assert!(heartbeat.is_due(now) && !heartbeat.is_due(now - Duration::from_millis(1)));
                if skipped == Some(number) {
                    heartbeat.skip(now);
                    continue;
                }
                let expected = if number == lost_at { Beat::Lost } else { Beat::Probe };
                assert_eq!(heartbeat.beat(now), expected, "{answered_after:?} {skipped:?} {number}");
                if answered_after == Some(number) {
                    heartbeat.answered();
                }
            }
        }
    }
}
