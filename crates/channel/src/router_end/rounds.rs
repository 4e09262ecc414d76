//! The clock by which the router's end distinguishes what is wrong from what is only late. Pure.
//!
//! Some states look like a broken rule but have an innocent reason for a moment: another thread is about to write the
//! cell whose ticket it has reserved, or the report of a worker's start has not arrived. A *round* is over when every
//! thread has swept since it began (and some time has passed), so that no thread is still in the middle of what it did
//! then. A [`Suspicion`] is proven when it has outlived some rounds. On a slow machine, or when the process was stopped,
//! rounds take longer, so that an innocent worker is never accused.

use std::time::{Duration, Instant};

/// The present round.
#[derive(Debug)]
pub(super) struct Rounds {
    /// One bit for each thread that must sweep before a round is over.
    threads: u64,
    /// The threads that have swept in this round.
    swept: u64,
    /// When this round began.
    began: Option<Instant>,
    number: u32,
}

/// A state that is wrong, unless it is only late. `K` distinguishes one such state from another.
#[derive(Debug)]
pub(super) struct Suspicion<K>(Option<(K, u32)>);

/// The shortest round.
const ROUND: Duration = Duration::from_millis(200);
/// The number of rounds that a suspicion has to outlive. The first one may have begun before it, and does not count.
const PROOF: u32 = 3;

// === impl Rounds ===

impl Rounds {
    /// Rounds of this number of threads.
    pub fn new(threads: u16) -> Rounds {
        let threads = 1u64.checked_shl(threads.into()).map_or(u64::MAX, |bit| bit - 1);
        Rounds { threads, swept: 0, began: None, number: 0 }
    }

    /// The thread sweeps; `true` when a round is over with that.
    pub fn sweep(&mut self, thread: u16, now: Instant) -> bool {
        self.swept |= 1 << (thread % 64);
        let over = self.swept & self.threads == self.threads
            && self.began.is_none_or(|began| now.saturating_duration_since(began) >= ROUND);
        if over {
            self.swept = 0;
            self.began = Some(now);
            self.number = self.number.wrapping_add(1);
        }
        over
    }

    /// The thread exits: rounds do not wait for its sweeps any more.
    pub fn leave(&mut self, thread: u16) {
        self.threads &= !(1 << (thread % 64));
    }

    /// The present round's number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

// === impl Suspicion ===

impl<K: PartialEq> Suspicion<K> {
    /// Nothing looks wrong.
    pub fn none() -> Suspicion<K> {
        Suspicion(None)
    }

    /// Notes what looks wrong in this round, if anything does. `true` when it has looked wrong for too long.
    pub fn is_proven(&mut self, seen: Option<K>, round: u32) -> bool {
        match (seen, &self.0) {
            (Some(seen), Some((before, since))) if seen == *before => round.wrapping_sub(*since) >= PROOF,
            (seen, _) => {
                self.0 = seen.map(|seen| (seen, round));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_takes_all_threads_and_its_time() {
        let mut rounds = Rounds::new(2);
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        for (thread, millis, over) in [
            (0, 0, false),
            (0, 900, false),
            (1, 901, true),
            (0, 902, false),
            (1, 903, false),
            (1, 1100, false),
            (0, 1101, true),
            (1, 9000, false),
        ] {
            assert_eq!(rounds.sweep(thread, at(millis)), over, "thread {thread} at {millis} ms");
        }
        assert_eq!(rounds.number(), 2);
        rounds.leave(0);
        assert!(rounds.sweep(1, at(9001)));
    }

    #[test]
    fn all_threads_that_a_channel_can_have_count() {
        let mut rounds = Rounds::new(crate::MAX_THREADS);
        let now = Instant::now();
        assert!((0..crate::MAX_THREADS - 1).all(|thread| !rounds.sweep(thread, now)));
        assert!(rounds.sweep(crate::MAX_THREADS - 1, now));
    }

    #[test]
    fn a_suspicion_that_stays_the_same_for_some_rounds_is_proven() {
        let mut suspicion = Suspicion::none();
        for (seen, round, proven) in [
            (Some(1), 7, false),
            (Some(1), 9, false),
            (Some(2), 10, false),
            (None, 12, false),
            (Some(2), 13, false),
            (Some(2), 15, false),
            (Some(2), 16, true),
            (Some(2), 17, true),
            (None, 18, false),
        ] {
            assert_eq!(suspicion.is_proven(seen, round), proven, "{seen:?} in round {round}");
        }
    }
}
