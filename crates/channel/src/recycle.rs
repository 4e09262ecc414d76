//! Whose turn it is to end for a new worker to take its place: one at a time.
//!
//! A worker that has served enough, or has grown too large, takes the turn; the one that comes into its place gives it
//! back when it serves. A turn that nobody gives back is over after [`LONGEST`]. It is a courtesy among the workers of one
//! application, in memory that each of them can write: whoever must end does so without it.

use crate::state::WorkerId;
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// The turn.
pub(crate) struct Turn<'m> {
    /// 0, or until when it is taken, in milliseconds of [`crate::account::monotonic`], and by whose place.
    word: &'m AtomicU64,
}

/// No new worker takes longer.
const LONGEST: Duration = Duration::from_secs(1);

// === impl Turn ===

impl<'m> Turn<'m> {
    pub fn of(word: &'m AtomicU64) -> Turn<'m> {
        Turn { word }
    }

    /// Takes the turn, if it is nobody's at this time.
    pub fn take(&self, me: WorkerId, now: Duration) -> bool {
        let known = self.word.load(Ordering::Relaxed);
        if known >> 16 > milliseconds(now) {
            return false;
        }
        let mine = milliseconds(now + LONGEST) << 16 | u64::from(me.index);
        self.word.compare_exchange(known, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The worker in this place serves: if it was this place's turn, it is over.
    pub fn give_back(&self, me: WorkerId) {
        let known = self.word.load(Ordering::Relaxed);
        if known != 0 && known as u16 == me.index {
            let _ = self.word.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64 & (u64::MAX >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_at_a_time_ends_until_the_next_one_serves_or_a_second_has_passed() {
        let word = AtomicU64::new(0);
        let turn = Turn::of(&word);
        let worker = |index| WorkerId { index, incarnation: 0 };
        let at = Duration::from_millis;
        assert!(turn.take(worker(7), at(5_000)));
        assert!(!turn.take(worker(8), at(5_000)));
        turn.give_back(worker(8));
        assert!(!turn.take(worker(8), at(5_999)), "it is not this one's to give back");
        turn.give_back(worker(7));
        assert!(turn.take(worker(8), at(5_001)));
        assert!(turn.take(worker(9), at(6_001)), "who never came back is not waited for");
        turn.give_back(worker(8));
        assert!(!turn.take(worker(8), at(6_002)));
        turn.give_back(worker(9));
        turn.give_back(worker(0));
        assert!(turn.take(worker(0), at(0)));
        turn.give_back(worker(0));
        assert!(turn.take(worker(1), at(0)));
    }
}
