//! The pace of rejections. Pure: a function of events and their times.
//!
//! A rejection costs the processors something, and a client that comes again at once costs it again. Beyond
//! [`PER_SECOND`] for each processor, about 5 % of it, a rejected request therefore waits for its answer: a waiting
//! connection costs memory only, and its client cannot come again meanwhile. No request waits longer for its rejection
//! than [`LONGEST_DELAY`], and no more than [`MOST_DELAYED`] wait.

use std::time::Duration;
use tokio::time::Instant;

/// When rejections are sent.
#[derive(Debug)]
pub struct RefusalPace {
    /// The time between two rejections.
    interval: Duration,
    /// The time of the next one.
    next: Option<Instant>,
    delayed: usize,
}

/// How many rejections per second each processor has time for. One costs router, kernel and network about 50 µs.
pub const PER_SECOND: u32 = 1000;
/// The number of rejections that may be sent at once after a pause.
const AT_ONCE: u32 = 50;
/// How long a request may wait for its rejection.
pub const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// How many requests may wait for their rejections. Each keeps its connection.
const MOST_DELAYED: usize = 4096;

// === impl RefusalPace ===

impl RefusalPace {
    /// The pace on a machine with this number of processors.
    pub fn new(processors: u32) -> RefusalPace {
        RefusalPace { interval: Duration::from_secs(1) / (PER_SECOND * processors.max(1)), next: None, delayed: 0 }
    }

    /// The time at which to reject another request. It is not before `now`.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let earliest = now.checked_sub(self.interval * AT_ONCE).unwrap_or(now);
        let at = self.next.map_or(earliest, |next| next.clamp(earliest, now + LONGEST_DELAY));
        self.next = Some(at + self.interval);
        at.max(now)
    }

    /// Counts a request that waits; `false` if too many wait already.
    pub fn begin_delay(&mut self) -> bool {
        let has_room = self.delayed < MOST_DELAYED;
        self.delayed += usize::from(has_room);
        has_room
    }

    /// The request waits no longer.
    pub fn end_delay(&mut self) {
        self.delayed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_rejections_are_sent_at_once_and_the_others_at_their_pace() {
        let mut pace = RefusalPace::new(2);
        let now = Instant::now();
        let delays: Vec<_> = (0..2050).map(|_| pace.reserve(now) - now).collect();
        assert!(delays[..50].iter().all(Duration::is_zero), "{delays:?}");
        assert!(delays[2049].abs_diff(Duration::from_secs(1)) <= Duration::from_millis(2), "{:?}", delays[2049]);
        let later = now + Duration::from_secs(5);
        assert_eq!(pace.reserve(later), later);
    }

    #[test]
    fn no_rejection_is_delayed_for_long() {
        let mut pace = RefusalPace::new(1);
        let now = Instant::now();
        assert!((0..100_000).all(|_| pace.reserve(now) <= now + LONGEST_DELAY));
    }

    #[test]
    fn a_limited_number_of_requests_is_delayed() {
        let mut pace = RefusalPace::new(1);
        assert_eq!((0..10_000).filter(|_| pace.begin_delay()).count(), MOST_DELAYED);
        pace.end_delay();
        assert!(pace.begin_delay() && !pace.begin_delay());
    }
}
