//! How many workers an application should have: the policy of `processes`. Pure.
//!
//! [`crate::policy::sizing`] decides for `"auto"`. The other forms are NGINX Unit's: spare workers are started before
//! they are needed, idle workers beyond the spare ones are retired after `idle_timeout`, and there are never more
//! workers than `max`.

use crate::policy::demand::Demand;
use crate::policy::sizing::Bounds;
use howdah_config::Processes;
use std::time::{Duration, Instant};

/// The source of the number of workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PoolPolicy {
    /// Measurements.
    Automatic(Bounds),
    /// The configuration.
    Configured(Pool),
}

/// The limits that the configuration sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The largest number of workers.
    pub max: usize,
    /// The number of idle workers that are started before they are needed.
    pub spare: usize,
    /// An idle worker beyond the spare ones is retired after this time; `None` is never.
    pub idle_timeout: Option<Duration>,
}

/// The time between two searches for idle workers.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The limit of an application that does not set one: its channel has room for this number of workers.
const DEFAULT_MAX: u32 = 512;

// === impl PoolPolicy ===

impl PoolPolicy {
    /// The policy of an application on a machine with this number of processors.
    pub fn new(processes: Processes, cores: f64) -> PoolPolicy {
        match processes {
            Processes::Automatic { max, memory } => {
                PoolPolicy::Automatic(Bounds { cores, max: max.unwrap_or(DEFAULT_MAX) as usize, memory })
            }
            Processes::Fixed(count) => {
                PoolPolicy::Configured(Pool { max: count as usize, spare: count as usize, idle_timeout: None })
            }
            Processes::Dynamic { max, spare, idle_timeout } => PoolPolicy::Configured(Pool {
                max: max as usize,
                spare: spare as usize,
                idle_timeout: Some(idle_timeout),
            }),
        }
    }

    /// The same policy with another limit, if its own is higher.
    pub fn at_most(self, most: usize) -> PoolPolicy {
        match self {
            PoolPolicy::Automatic(bounds) => PoolPolicy::Automatic(Bounds { max: bounds.max.min(most), ..bounds }),
            PoolPolicy::Configured(pool) => {
                PoolPolicy::Configured(Pool { max: pool.max.min(most), spare: pool.spare.min(most), ..pool })
            }
        }
    }

    /// The largest number of workers.
    pub fn max(&self) -> usize {
        match self {
            PoolPolicy::Automatic(bounds) => bounds.max,
            PoolPolicy::Configured(pool) => pool.max,
        }
    }

    /// How many workers are started at first. At least one, which proves that the application works.
    pub fn at_start(&self) -> usize {
        match self {
            PoolPolicy::Automatic(bounds) => bounds.least(),
            PoolPolicy::Configured(pool) => pool.spare.clamp(1, pool.max),
        }
    }

    /// How many workers should at least be idle; `None` if the number of workers is fixed.
    pub fn spare(&self) -> Option<usize> {
        match self {
            PoolPolicy::Automatic(_) => Some(0),
            PoolPolicy::Configured(pool) => pool.idle_timeout.map(|_| pool.spare),
        }
    }
}

// === impl Pool ===

impl Pool {
    /// How many workers there should be. Never fewer than there are.
    pub fn wanted(&self, demand: Demand) -> usize {
        let available = demand.idle + demand.starting;
        let missing = (demand.waiting + self.spare).saturating_sub(available);
        (demand.all + missing).min(self.max).max(demand.all)
    }

    /// Which idle workers to retire. `idle_since` has the worker's index and the time since which it is idle.
    pub fn surplus(self, idle_since: &[(u16, Instant)], now: Instant) -> Vec<u16> {
        let Some(timeout) = self.idle_timeout else { return Vec::new() };
        let mut idle = idle_since.to_vec();
        // Retire the longest-idle workers first: the others have warm caches.
        idle.sort_by_key(|(_, since)| *since);
        idle.truncate(idle.len().saturating_sub(self.spare));
        idle.retain(|(_, since)| now.saturating_duration_since(*since) >= timeout);
        idle.into_iter().map(|(index, _)| index).collect()
    }

    /// When to search again for idle workers, if there are this many: a busy worker becomes idle without a notice.
    pub fn next_check(&self, workers: usize, now: Instant) -> Option<Instant> {
        (self.idle_timeout.is_some() && workers > self.spare).then(|| now + IDLE_CHECK_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELASTIC: Pool = Pool { max: 10, spare: 2, idle_timeout: Some(Duration::from_secs(20)) };

    #[test]
    fn spare_workers_are_started_before_they_are_needed() {
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
            // A lowered limit stops no worker.
            ((0, 0, 12, 5), 12),
        ];
        for ((idle, starting, all, waiting), wanted) in table {
            assert_eq!(
                ELASTIC.wanted(Demand { idle, starting, all, waiting }),
                wanted,
                "{idle} {starting} {all} {waiting}"
            );
        }
    }

    #[test]
    fn without_spare_ones_a_worker_starts_when_a_request_waits() {
        let pool = Pool { spare: 0, ..ELASTIC };
        assert_eq!(PoolPolicy::Configured(pool).at_start(), 1);
        assert_eq!(pool.wanted(Demand::default()), 0);
        assert_eq!(pool.wanted(Demand { waiting: 1, ..Demand::default() }), 1);
    }

    #[test]
    fn the_longest_idle_workers_are_retired_but_not_the_spare_ones() {
        let now = Instant::now() + Duration::from_secs(1000);
        let since = |seconds: u64| now - Duration::from_secs(seconds);
        let idle = [(0, since(1)), (1, since(30)), (2, since(25)), (3, since(40)), (4, since(19))];
        assert_eq!(ELASTIC.surplus(&idle, now), [3, 1, 2]);
        assert_eq!(ELASTIC.surplus(&idle[..2], now), Vec::<u16>::new());
        assert_eq!(Pool { idle_timeout: None, ..ELASTIC }.surplus(&idle, now), Vec::<u16>::new());
    }

    #[test]
    fn a_fixed_number_never_changes() {
        let policy = PoolPolicy::new(Processes::Fixed(3), 8.0);
        assert_eq!((policy.at_most(2).at_start(), policy.at_most(2).max(), policy.at_most(9)), (2, 2, policy));
        assert_eq!((policy.at_start(), policy.max(), policy.spare()), (3, 3, None));
        let PoolPolicy::Configured(pool) = policy else { panic!("{policy:?}") };
        assert_eq!(pool.wanted(Demand { all: 3, ..Demand::default() }), 3);
    }

    #[test]
    fn an_automatic_number_starts_with_two() {
        for (cores, max, at_start) in [(8.0, None, 2), (0.5, None, 2), (8.0, Some(1), 1)] {
            let policy = PoolPolicy::new(Processes::Automatic { max, memory: None }, cores);
            assert_eq!((policy.at_start(), policy.spare()), (at_start, Some(0)), "{cores} {max:?}");
        }
    }
}
