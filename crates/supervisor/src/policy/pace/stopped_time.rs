//! How long signals have stopped a process lately: it is too long when it adds up to a second within five.
//!
//! A process that another one stops and continues again and again serves nothing either. While it runs, a quarter of
//! the time that it runs is taken off.

use std::time::{Duration, Instant};

/// The time that a process was stopped.
#[derive(Clone, Copy, Debug)]
pub struct StoppedTime {
    /// The time until `at` that still counts.
    counted: Duration,
    at: Instant,
    is_stopped: bool,
}

/// Long enough for an operator who stops and continues all processes.
const LONGEST: Duration = Duration::from_secs(1);
/// One second of running takes off one of these parts of a second.
const PARTS: u32 = 4;

// === impl StoppedTime ===

impl StoppedTime {
    /// A process that runs.
    pub fn new(now: Instant) -> StoppedTime {
        StoppedTime { counted: Duration::ZERO, at: now, is_stopped: false }
    }

    /// Its state has changed, perhaps.
    pub fn observe(&mut self, is_stopped: bool, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.counted = match self.is_stopped {
            true => (self.counted + passed).min(LONGEST),
            false => self.counted.saturating_sub(passed / PARTS),
        };
        (self.at, self.is_stopped) = (now, is_stopped);
    }

    /// When it has been stopped for too long; `None` while it runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.is_stopped.then(|| self.at + (LONGEST - self.counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_stops_add_up() {
        let start = Instant::now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        // The times in milliseconds of a stop, a continuation, a stop …, and the deadline after the last of them.
        let table: [(&[u64], Option<u64>); _] = [
            (&[], None),
            (&[100], Some(1100)),
            (&[100, 1000], None),
            (&[100, 1000, 1010], Some(1010 + 102)),
            (&[0, 900, 900, 950], None),
            (&[0, 900, 900, 950, 950], Some(1000)),
            (&[0, 1000, 5000], Some(6000)),
            (&[0, 1000, 3000], Some(3500)),
            // The whole machine was stopped.
            (&[0, 3_600_000, 3_604_000], Some(3_605_000)),
        ];
        for (changes, deadline) in table {
            let mut time = StoppedTime::new(start);
            for (number, change) in changes.iter().enumerate() {
                time.observe(number % 2 == 0, at(*change));
            }
            let deadline = deadline.map(at);
            let is_near = |found: Instant, expected: Instant| {
                found.max(expected) - found.min(expected) < Duration::from_millis(1)
            };
            assert_eq!(time.deadline().is_some(), deadline.is_some(), "{changes:?}");
            assert!(
                time.deadline().zip(deadline).is_none_or(|(found, expected)| is_near(found, expected)),
                "{changes:?}"
            );
        }
    }
}
