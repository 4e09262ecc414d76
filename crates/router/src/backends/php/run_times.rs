//! How many requests may wait for the workers that are awake before another one is woken.
//!
//! A worker that is woken for requests of some microseconds takes the processors from those that run them already: it wakes,
//! finds nothing, and sleeps again. Measured with `hello` on two cores and 20 connections: 14 % of the CPU with two workers, and
//! a third of the throughput with eight. Therefore quick requests wait up to [`WAIT`] for the workers that are awake, if these
//! keep the processors busy. It does not hold for an application with requests that are not quick: others would wait behind one
//! until the router notices that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the last requests of a generation occupied their workers. Threads may lose each other's changes: each is a small
/// part.
#[derive(Debug)]
pub struct RunTimes {
    /// The mean of quick requests, in nanoseconds.
    mean: AtomicU64,
    /// The number of quick requests since the last one that was not.
    in_a_row: AtomicU64,
}

/// How long requests may wait for workers that are awake.
const WAIT: Duration = Duration::from_micros(300);
/// A request that takes this long is not quick. The kernel and its hypervisor make some of `hello` take more than [`WAIT`].
const LONG: Duration = Duration::from_millis(1);
/// The requests of a generation are quick after this number of them in a row.
const MANY: u64 = 1000;
/// The part of the mean that each request changes.
const PART_OF_MEAN: i64 = 16;

// === impl RunTimes ===

impl RunTimes {
    /// Before the first request.
    pub fn new() -> RunTimes {
        RunTimes { mean: nanoseconds(WAIT).into(), in_a_row: 0.into() }
    }

    /// A request occupied a worker for this time.
    pub fn add(&self, occupied: Duration) {
        if occupied >= LONG {
            self.not_quick();
            return;
        }
        self.in_a_row.store(self.in_a_row.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let mean = self.mean.load(Ordering::Relaxed);
        let change = (nanoseconds(occupied) as i64 - mean as i64) / PART_OF_MEAN;
        self.mean.store(mean.saturating_add_signed(change), Ordering::Relaxed);
    }

    /// A request is under way for long, or will not report its time.
    pub fn not_quick(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }

    /// How many requests may wait before another worker is woken, with this number of workers that are awake.
    pub fn wake_threshold(&self, awake: u64, processors: usize) -> u32 {
        // The router works as long for a quick request as PHP does: half of the processors are for it.
        let are_busy = 2 * awake >= processors as u64;
        if !are_busy || self.in_a_row.load(Ordering::Relaxed) < MANY {
            return 0;
        }
        (nanoseconds(WAIT) / self.mean.load(Ordering::Relaxed).max(1000)) as u32
    }
}

/// Of a short time.
fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After 2,000 rounds of requests that occupy their workers for these microseconds.
    fn after(rounds: &[u64]) -> RunTimes {
        let times = RunTimes::new();
        for _ in 0..2_000 {
            rounds.iter().for_each(|time| times.add(Duration::from_micros(*time)));
        }
        times
    }

    #[test]
    fn quick_requests_wait_for_workers_that_keep_the_processors_busy() {
        let rare = [[15; 500].as_slice(), &[50_000], &[15; 499]].concat();
        // The requests, the workers that are awake, the processors, and the expected threshold.
        let table: [(&[u64], u64, usize, u32); _] = [
            (&[15], 0, 1, 0),
            (&[15], 0, 2, 0),
            (&[15], 1, 1, 20),
            (&[15], 1, 2, 20),
            (&[15], 1, 3, 0),
            (&[15], 2, 8, 0),
            (&[15], 4, 8, 20),
            (&[0], 1, 2, 300),
            (&[60], 1, 2, 5),
            (&[15, 250], 1, 2, 2),
            (&[299], 1, 2, 1),
            (&[310], 2, 2, 0),
            (&[1000], 2, 2, 0),
            (&[10_000], 2, 2, 0),
            (&[5, 50_000, 5], 2, 2, 0),
            (&rare, 9, 2, 0),
        ];
        for (rounds, awake, processors, expected) in table {
            let threshold = after(rounds).wake_threshold(awake, processors);
            assert!(
                threshold.abs_diff(expected) <= u32::from(expected > 3),
                "{rounds:?} {awake}/{processors}: {threshold}"
            );
        }
    }

    #[test]
    fn requests_are_quick_after_a_thousand_in_a_row() {
        let times = RunTimes::new();
        for _ in 0..2 {
            let quick = (0..5000).take_while(|_| {
                times.add(Duration::from_micros(15));
                times.wake_threshold(1, 2) == 0
            });
            assert_eq!(quick.count(), 999);
            times.add(Duration::from_millis(5));
        }
    }
}
