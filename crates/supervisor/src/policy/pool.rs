//! How many workers an application shall have: the policy of `processes`, pure.
//!
//! `"auto"` is [`crate::policy::sizing`]'s. The other forms are NGINX Unit's: spare workers are there before they are needed; idle
//! ones beyond the spare ones leave after `idle_timeout`; there are never more than `max`.

use crate::policy::demand::Seen;
use crate::policy::sizing::Bounds;
use howdah_config::Processes;
use std::time::{Duration, Instant};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// What is measured.
    Automatic(Bounds),
    /// What the configuration says.
    Stated(Pool),
}

/// What the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Never more workers than this.
    pub max: usize,
    /// So many are there before they are needed.
    pub spare: usize,
    /// One beyond the spare ones that has been idle for so long leaves; `None` is never.
    pub idle_timeout: Option<Duration>,
}

/// How often idle workers are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Of applications that say nothing of it: what their channels have room for.
const MOST_AUTOMATIC: u32 = 512;

// === impl Policy ===

impl Policy {
    /// The policy of an application on a machine with so many processors.
    pub fn new(processes: Processes, cores: f64) -> Policy {
        match processes {
            Processes::Automatic { max, memory } => {
                Policy::Automatic(Bounds { cores, max: max.unwrap_or(MOST_AUTOMATIC) as usize, memory })
            }
            Processes::Fixed(count) => {
                Policy::Stated(Pool { max: count as usize, spare: count as usize, idle_timeout: None })
            }
            Processes::Dynamic { max, spare, idle_timeout } => {
                Policy::Stated(Pool { max: max as usize, spare: spare as usize, idle_timeout: Some(idle_timeout) })
            }
        }
    }

    /// Never more workers than this.
    pub fn max(&self) -> usize {
        match self {
            Policy::Automatic(bounds) => bounds.max,
            Policy::Stated(pool) => pool.max,
        }
    }

    /// How many there are at the start. One, at least, shows that the application works.
    pub fn at_start(&self) -> usize {
        match self {
            Policy::Automatic(bounds) => bounds.least(),
            Policy::Stated(pool) => pool.spare.clamp(1, pool.max),
        }
    }

    /// If the number of workers changes: how many should be idle at least.
    pub fn spare(&self) -> Option<usize> {
        match self {
            Policy::Automatic(_) => Some(0),
            Policy::Stated(pool) => pool.idle_timeout.map(|_| pool.spare),
        }
    }
}

// === impl Pool ===

impl Pool {
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

    /// When to look again for workers that are to leave, of so many: busy ones become idle without a word.
    pub fn next_look(&self, workers: usize, now: Instant) -> Option<Instant> {
        (self.idle_timeout.is_some() && workers > self.spare).then(|| now + LOOK)
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
        assert_eq!(Policy::Stated(pool).at_start(), 1);
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
        let policy = Policy::new(Processes::Fixed(3), 8.0);
        assert_eq!((policy.at_start(), policy.max(), policy.spare()), (3, 3, None));
        let Policy::Stated(pool) = policy else { panic!("{policy:?}") };
        assert_eq!(pool.wanted(Seen { all: 3, ..Seen::default() }), 3);
    }

    #[test]
    fn an_automatic_number_begins_with_two() {
        for (cores, max, at_start) in [(8.0, None, 2), (0.5, None, 2), (8.0, Some(1), 1)] {
            let policy = Policy::new(Processes::Automatic { max, memory: None }, cores);
            assert_eq!((policy.at_start(), policy.spare()), (at_start, Some(0)), "{cores} {max:?}");
        }
    }
}
