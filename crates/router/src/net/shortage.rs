//! How long a thread has had no descriptor for a new connection. Pure.

use std::time::{Duration, Instant};

/// Failures in a row.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    since: Instant,
    last: Instant,
}

/// A shortage that lasts this long does not end with some connections. Two failures with more time between them are two
/// shortages: a thread tries again many times a second.
const LASTING: Duration = Duration::from_secs(1);

// === impl Shortage ===

impl Shortage {
    /// Another failure, after the shortage before.
    pub fn after(before: Option<Shortage>, now: Instant) -> Shortage {
        let same = before.filter(|before| now.saturating_duration_since(before.last) < LASTING);
        Shortage { since: same.map_or(now, |same| same.since), last: now }
    }

    /// Whether it has lasted for a second.
    pub fn lasts(&self) -> bool {
        self.last.saturating_duration_since(self.since) >= LASTING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_in_a_row_last() {
        let start = Instant::now();
        // Times of failures in milliseconds, and whether the shortage lasts then.
        let table: [&[(u64, bool)]; _] = [
            &[(0, false), (20, false), (999, false), (1000, true), (1020, true)],
            &[(0, false), (500, false), (1499, true)],
            &[(0, false), (1000, false), (2500, false), (3000, false), (3500, true)],
        ];
        for failures in table {
            let mut shortage = None;
            for (at, lasts) in failures {
                let now = Shortage::after(shortage, start + Duration::from_millis(*at));
                assert_eq!(now.lasts(), *lasts, "{at} of {failures:?}");
                shortage = Some(now);
            }
        }
    }
}
