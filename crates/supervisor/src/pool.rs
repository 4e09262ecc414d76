//! How many workers an application shall have: the policy of `processes`, pure.
//!
//! As NGINX Unit's: spare workers are there before they are needed; idle ones beyond the spare ones leave after
//! `idle_timeout`; there are never more than `max`.

use howdah_config::Processes;
use std::time::{Duration, Instant};

/// What the policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Never more workers than this.
    pub max: usize,
    /// So many are there before they are needed.
    pub spare: usize,
    /// One beyond the spare ones that has been idle for so long leaves; `None` is never.
    pub idle_timeout: Option<Duration>,
}

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Workers that have nothing to do.
    pub idle: usize,
    /// Workers that are being started.
    pub starting: usize,
    /// All workers, those two kinds included, without those that leave.
    pub all: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
}

/// How often idle workers are looked for.
const LOOK: Duration = Duration::from_millis(100);

// === impl Pool ===

impl Pool {
    /// The policy of an application on a machine where so many workers are as many as it needs by default.
    pub fn new(processes: Processes, by_default: u32) -> Pool {
        let fixed = |count: u32| Pool { max: count as usize, spare: count as usize, idle_timeout: None };
        match processes {
            Processes::Automatic => fixed(by_default),
            Processes::Fixed(count) => fixed(count),
            Processes::Dynamic { max, spare, idle_timeout } => {
                Pool { max: max as usize, spare: spare as usize, idle_timeout: Some(idle_timeout) }
            }
        }
    }

    /// Whether the number of workers changes.
    pub fn is_elastic(&self) -> bool {
        self.idle_timeout.is_some()
    }

    /// How many there are at the start. One, at least, shows that the application works.
    pub fn at_start(&self) -> usize {
        self.spare.clamp(1, self.max)
    }

    /// How many workers there shall be, no fewer than there are.
    pub fn wanted(&self, seen: Seen) -> usize {
        let available = seen.idle + seen.starting;
        let missing = (seen.waiting + self.spare).saturating_sub(available);
        (seen.all + missing).min(self.max).max(seen.all)
    }

    /// Which of the idle workers, given the moment since when each is idle, are to leave.
    pub fn surplus(self, idle_since: &[(u16, Instant)], now: Instant) -> Vec<u16> {
        let Some(timeout) = self.idle_timeout else { return Vec::new() };
        let mut idle = idle_since.to_vec();
        // Those that have been idle for longest go; the others are warm.
        idle.sort_by_key(|(_, since)| *since);
        let leaving = idle.len().saturating_sub(self.spare);
        idle.truncate(leaving);
        idle.retain(|(_, since)| now.saturating_duration_since(*since) >= timeout);
        idle.into_iter().map(|(place, _)| place).collect()
    }

    /// When to look again for workers that are to leave.
    pub fn next_look(&self, idle: usize, now: Instant) -> Option<Instant> {
        (self.is_elastic() && idle > self.spare).then(|| now + LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELASTIC: Pool = Pool { max: 10, spare: 2, idle_timeout: Some(Duration::from_secs(20)) };

    #[test]
    fn spare_workers_are_there_before_they_are_needed() {
        // idle, starting, all, waiting → wanted
        let table = [
            ((2, 0, 2, 0), 2),
            ((1, 0, 2, 0), 3),
            ((0, 0, 2, 0), 4),
            ((0, 2, 4, 0), 4),
            ((0, 0, 2, 3), 7),
            ((0, 5, 7, 3), 7),
            ((0, 0, 2, 100), 10),
            ((0, 0, 10, 100), 10),
            ((5, 0, 5, 0), 5),
            // A limit that was lowered takes nobody away from a request.
            ((0, 0, 12, 5), 12),
        ];
        for ((idle, starting, all, waiting), wanted) in table {
            assert_eq!(
                ELASTIC.wanted(Seen { idle, starting, all, waiting }),
                wanted,
                "{idle} {starting} {all} {waiting}"
            );
        }
    }

    #[test]
    fn without_spare_ones_a_worker_starts_when_a_request_waits() {
        let pool = Pool { spare: 0, ..ELASTIC };
        assert_eq!(pool.at_start(), 1);
        assert_eq!(pool.wanted(Seen::default()), 0);
        assert_eq!(pool.wanted(Seen { waiting: 1, ..Seen::default() }), 1);
    }

    #[test]
    fn those_idle_for_longest_leave_but_not_the_spare_ones() {
        let now = Instant::now() + Duration::from_secs(1000);
        let since = |seconds: u64| now - Duration::from_secs(seconds);
        let idle = [(0, since(1)), (1, since(30)), (2, since(25)), (3, since(40)), (4, since(19))];
        assert_eq!(ELASTIC.surplus(&idle, now), [3, 1, 2]);
        assert_eq!(ELASTIC.surplus(&idle[..2], now), Vec::<u16>::new());
        assert_eq!(Pool { idle_timeout: None, ..ELASTIC }.surplus(&idle, now), Vec::<u16>::new());
    }

    #[test]
    fn a_fixed_number_is_always_there() {
        let pool = Pool::new(Processes::Fixed(3), 8);
        assert_eq!((pool.at_start(), pool.is_elastic()), (3, false));
        assert_eq!(Pool::new(Processes::Automatic, 8).at_start(), 8);
        assert_eq!(pool.wanted(Seen { all: 3, ..Seen::default() }), 3);
    }
}
