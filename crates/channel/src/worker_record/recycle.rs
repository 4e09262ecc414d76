//! The turn to exit for a replacement: one worker of an application has it at a time.
//!
//! A worker that has answered enough requests, or has grown too large, takes the turn. Its replacement gives the turn back
//! when it serves. A turn that is not given back ends after [`MAX_TURN`]. The turn is a courtesy among the workers of one
//! application, in memory that each of them can write: a worker that must exit does so without it.

use crate::slot_state::WorkerId;
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// The turn.
pub(crate) struct Turn<'m> {
    /// 0, or the end of the turn, in milliseconds of [`monotonic`](crate::account::monotonic), and the index of its owner.
    word: &'m AtomicU64,
}

/// The longest turn: no replacement takes longer to start.
const MAX_TURN: Duration = Duration::from_secs(1);

// === impl Turn ===

impl<'m> Turn<'m> {
    pub fn of(word: &'m AtomicU64) -> Turn<'m> {
        Turn { word }
    }

    /// Takes the turn, if no other worker has it at this time.
    pub fn take(&self, me: WorkerId, now: Duration) -> bool {
        let known = self.word.load(Ordering::Relaxed);
        if known >> 16 > milliseconds(now) {
            return false;
        }
        let mine = milliseconds(now + MAX_TURN) << 16 | u64::from(me.index);
        self.word.compare_exchange(known, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The worker with this index serves: if its predecessor had the turn, the turn is over.
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
    fn one_worker_has_the_turn_until_its_replacement_serves_or_a_second_has_passed() {
        let word = AtomicU64::new(0);
        let turn = Turn::of(&word);
        let worker = |index| WorkerId { index, incarnation: 0 };
        let at = Duration::from_millis;
        assert!(turn.take(worker(7), at(5_000)));
        assert!(!turn.take(worker(8), at(5_000)));
        turn.give_back(worker(8));
        assert!(!turn.take(worker(8), at(5_999)), "worker 8 has no turn to give back");
        turn.give_back(worker(7));
        assert!(turn.take(worker(8), at(5_001)));
        assert!(turn.take(worker(9), at(6_001)), "a turn that is not given back ends by itself");
        turn.give_back(worker(8));
        assert!(!turn.take(worker(8), at(6_002)));
        turn.give_back(worker(9));
        turn.give_back(worker(0));
        assert!(turn.take(worker(0), at(0)));
        turn.give_back(worker(0));
        assert!(turn.take(worker(1), at(0)));
    }
}
