//! The limits after which a worker exits for a replacement: `limits/requests` and `limits/memory`. Pure.
//!
//! Two workers do not exit at the same time if that can be avoided: each requests the turn before it must exit, and each at
//! another number of requests.

/// The limits of one worker.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    requests: Option<Requests>,
    /// In bytes.
    memory: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Requests {
    /// After this number it exits if it gets the turn.
    early: u64,
    /// After this number it exits.
    most: u64,
}

/// The limit that a worker has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `limits/requests`.
    Requests,
    /// `limits/memory`.
    Memory,
}

/// Workers exit in the last part of their requests: one of this number of parts.
const SPREAD: u64 = 10;

// === impl Allowance ===

impl Allowance {
    /// The limits of the worker with this index.
    pub fn new(requests: Option<u32>, memory: Option<u64>, index: u16) -> Allowance {
        let requests = requests.map(|most| {
            let most = u64::from(most);
            let spread = most / SPREAD;
            // Van der Corput's sequence: for any number of workers, their numbers are far from each other.
            let offset = (spread * u64::from(index.reverse_bits())) >> 16;
            Requests { early: most - spread + offset, most }
        });
        Allowance { requests, memory }
    }

    /// The limit for which the worker exits now. `served` are its requests, `grown` is its growth in bytes; `take_turn`
    /// takes the turn if it is free.
    pub fn reached(&self, served: u64, grown: u64, take_turn: impl FnOnce() -> bool) -> Option<Limit> {
        let (reason, must) = match (self.requests, self.memory) {
            (_, Some(limit)) if grown > limit => (Limit::Memory, grown / 2 > limit),
            (Some(requests), _) if served >= requests.early => (Limit::Requests, false),
            _ => return None,
        };
        let must = must || self.requests.is_some_and(|requests| served >= requests.most);
        // A worker that must exit takes the turn, too, if it can: other workers then wait for its replacement.
        (take_turn() || must).then_some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early(requests: u32, place: u16) -> u64 {
        (0..).find(|served| Allowance::new(Some(requests), None, place).reached(*served, 0, || true).is_some()).unwrap()
    }

    #[test]
    fn workers_exit_at_different_times_and_never_beyond_their_requests() {
        assert_eq!([0, 1, 2, 3, 4].map(|place| early(1000, place)), [900, 950, 925, 975, 912]);
        for place in [0, 1, 5, u16::MAX] {
            for requests in [1, 2, 9] {
                assert_eq!(early(requests, place), u64::from(requests), "a small number is exact");
            }
            let allowance = Allowance::new(Some(1000), None, place);
            assert_eq!(allowance.reached(999, 0, || false), None);
            assert_eq!(allowance.reached(1000, 0, || false), Some(Limit::Requests));
        }
    }

    #[test]
    fn a_worker_that_is_too_large_waits_for_its_turn_until_it_is_twice_as_large() {
        let allowance = Allowance::new(None, Some(100), 3);
        for (bytes, is_turn, ends) in
            [(100, true, false), (101, true, true), (101, false, false), (201, false, false), (202, false, true)]
        {
            assert_eq!(allowance.reached(9, bytes, || is_turn), ends.then_some(Limit::Memory), "{bytes}");
        }
        let both = Allowance::new(Some(5), Some(100), 0);
        assert_eq!(both.reached(4, 300, || false), Some(Limit::Memory));
        assert_eq!(both.reached(5, 3, || false), Some(Limit::Requests));
        let many = Allowance::new(Some(1000), Some(100), 0);
        assert_eq!(many.reached(950, 300, || false), Some(Limit::Memory), "it may exit early, and must now");
    }

    #[test]
    fn without_limits_a_worker_goes_on() {
        let is_turn = || panic!("no limit takes the turn");
        assert_eq!(Allowance::new(None, None, 0).reached(u64::MAX, u64::MAX, is_turn), None);
    }
}
