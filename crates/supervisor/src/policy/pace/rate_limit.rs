//! A rate limit with a burst: a token bucket.
//!
//! A script that kills each worker that runs it must not delay other requests, so a worker that died in a request is
//! replaced at once. It must not keep the machine busy with forks either: after a burst, only a steady rate of workers
//! is replaced. The router already holds back requests that it has seen to kill (its `php::killers`). This limit is for
//! the deaths that the router cannot attribute to a request.

use std::time::{Duration, Instant};

/// A bucket of tokens. It stores the time at which it would be empty of debts, so nothing has to refill it.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// The time between two tokens, once the burst is spent.
    interval: Duration,
    /// When all spent tokens are back; `None` before the first one is spent.
    spent_until: Option<Instant>,
}

// === impl RateLimit ===

impl RateLimit {
    /// A full bucket.
    pub const fn new(interval: Duration) -> RateLimit {
        RateLimit { interval, spent_until: None }
    }

    /// Spends one token of a bucket that holds `burst` of them. Returns the time from which the caller may use it.
    pub fn spend(&mut self, burst: u32, now: Instant) -> Instant {
        let spent_until = self.spent_until.map_or(now, |until| until.max(now));
        self.spent_until = Some(spent_until + self.interval);
        let saved = self.interval * burst.saturating_sub(1);
        spent_until.checked_sub(saved).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_events_pass_at_the_interval_and_a_pause_restores_the_burst() {
        // Burst, times of events, delays until they pass; in milliseconds.
        let table: [(u32, Vec<u64>, Vec<u64>); _] = [
            (10, vec![0; 13], [vec![0; 10], vec![20, 40, 60]].concat()),
            // Each event comes after the one before has passed.
            (10, vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 40], [vec![0; 10], vec![20; 3]].concat()),
            (10, [vec![0; 11], vec![220; 11]].concat(), [vec![0; 10], vec![20]].concat().repeat(2)),
            // At the steady rate nothing waits.
            (10, (0..100).map(|number| number * 20).collect(), vec![0; 100]),
            (100, vec![0; 101], [vec![0; 100], vec![20]].concat()),
        ];
        for (burst, events, delays) in table {
            let (mut limit, start) =
                (RateLimit::new(Duration::from_millis(20)), Instant::now() + Duration::from_secs(3600));
            let passed = events.iter().map(|at| {
                let now = start + Duration::from_millis(*at);
                (limit.spend(burst, now) - now).as_millis() as u64
            });
            assert_eq!(passed.collect::<Vec<_>>(), delays, "{burst} {events:?}");
        }
    }
}
