//! When a worker has done its part, and another one takes its place: `limits/requests` and `limits/memory`. Pure.
//!
//! Two workers do not end at the same time if that can be helped: each asks for the turn before it must end, and at a
//! time of its own.

/// What a worker may do.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    requests: Option<Requests>,
    /// In bytes.
    memory: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Requests {
    /// After so many it ends if it is its turn.
    early: u64,
    /// After so many it ends.
    most: u64,
}

/// Why a worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// It answered its requests.
    Requests,
    /// It has grown too large.
    Memory,
}

/// The part of the requests, one of so many, in which a worker ends.
const SPREAD: u64 = 10;

// === impl Allowance ===

impl Allowance {
    /// That of the worker in this place.
    pub fn new(requests: Option<u32>, memory: Option<u64>, place: u16) -> Allowance {
        let requests = requests.map(|most| {
            let most = u64::from(most);
            let spread = most / SPREAD;
            // Van der Corput's sequence: however many workers there are, their times are far from each other.
            let offset = (spread * u64::from(place.reverse_bits())) >> 16;
            Requests { early: most - spread + offset, most }
        });
        Allowance { requests, memory }
    }

    /// Whether it ends now, having served so many requests and grown by so much. `is_turn` asks for the turn, and takes it.
    pub fn is_used_up(&self, served: u64, grown: u64, is_turn: impl FnOnce() -> bool) -> Option<Enough> {
        let (reason, must) = match (self.requests, self.memory) {
            (_, Some(limit)) if grown > limit => (Enough::Memory, grown / 2 > limit),
            (Some(requests), _) if served >= requests.early => (Enough::Requests, false),
            _ => return None,
        };
        let must = must || self.requests.is_some_and(|requests| served >= requests.most);
        // Who must end takes the turn too, if it can: others are to wait for the next worker.
        (is_turn() || must).then_some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early(requests: u32, place: u16) -> u64 {
        (0..)
            .find(|served| Allowance::new(Some(requests), None, place).is_used_up(*served, 0, || true).is_some())
            .unwrap()
    }

    #[test]
    fn workers_end_at_different_times_and_never_after_more_requests_than_they_may() {
        assert_eq!([0, 1, 2, 3, 4].map(|place| early(1000, place)), [900, 950, 925, 975, 912]);
        for place in [0, 1, 5, u16::MAX] {
            for requests in [1, 2, 9] {
                assert_eq!(early(requests, place), u64::from(requests), "a small number is exact");
            }
            let allowance = Allowance::new(Some(1000), None, place);
            assert_eq!(allowance.is_used_up(999, 0, || false), None);
            assert_eq!(allowance.is_used_up(1000, 0, || false), Some(Enough::Requests));
        }
    }

    #[test]
    fn a_worker_that_is_too_large_waits_for_its_turn_until_it_is_twice_as_large() {
        let allowance = Allowance::new(None, Some(100), 3);
        for (bytes, is_turn, ends) in
            [(100, true, false), (101, true, true), (101, false, false), (201, false, false), (202, false, true)]
        {
            assert_eq!(allowance.is_used_up(9, bytes, || is_turn), ends.then_some(Enough::Memory), "{bytes}");
        }
        let both = Allowance::new(Some(5), Some(100), 0);
        assert_eq!(both.is_used_up(4, 300, || false), Some(Enough::Memory));
        assert_eq!(both.is_used_up(5, 3, || false), Some(Enough::Requests));
        let many = Allowance::new(Some(1000), Some(100), 0);
        assert_eq!(many.is_used_up(950, 300, || false), Some(Enough::Memory), "it may end early, and must now");
    }

    #[test]
    fn without_limits_a_worker_goes_on() {
        let is_turn = || panic!("nobody asks");
        assert_eq!(Allowance::new(None, None, 0).is_used_up(u64::MAX, u64::MAX, is_turn), None);
    }
}
