//! How fast workers that died at work are replaced. Pure.
//!
//! A script that kills each worker that touches it must not keep the others' requests waiting: so the next worker starts
//! at once. Nor must it keep the machine busy with forks: beyond some deaths in a row, so many a second are replaced. (A
//! token bucket, as an instant: until when what is spent is earned again.) Those are more than what the router lets run
//! of requests that it has seen to kill (its `php::killers`): what remains here is what it cannot tell from the others.

use std::time::{Duration, Instant};

/// What may be spent on replacing workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    spent_until: Option<Instant>,
}

/// So many, at least, are replaced at once.
const AT_ONCE: u32 = 10;
/// After that, one in this time.
const EACH: Duration = Duration::from_millis(20);

// === impl Budget ===

impl Budget {
    /// When one more of so many workers may be replaced. That is then spent.
    pub fn spend(&mut self, workers: usize, now: Instant) -> Instant {
        // However many there are, all of them may die together once.
        let at_once = AT_ONCE.max(u32::try_from(workers).unwrap_or(u32::MAX));
        let spent_until = self.spent_until.map_or(now, |until| until.max(now));
        self.spent_until = Some(spent_until + EACH);
        spent_until.checked_sub(EACH * (at_once - 1)).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deaths at these times; the waits for their replacements. In milliseconds.
    fn waits(workers: usize, deaths: &[u64]) -> Vec<u64> {
        let (mut budget, start) = (Budget::default(), Instant::now() + Duration::from_secs(3600));
        let wait = |at: &u64| {
            let now = start + Duration::from_millis(*at);
            (budget.spend(workers, now) - now).as_millis() as u64
        };
        deaths.iter().map(wait).collect()
    }

    #[test]
    fn ten_are_replaced_at_once_then_fifty_a_second() {
        let mut together = vec![0; 10];
        together.extend([20, 40, 60]);
        assert_eq!(waits(2, &[0; 13]), together);
        // Each after the one before has been replaced: as long as it takes.
        let mut one_by_one = vec![0; 10];
        one_by_one.extend([20, 20, 20]);
        assert_eq!(waits(2, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 40]), one_by_one);
    }

    #[test]
    fn a_quiet_time_earns_all_of_it_again() {
        let mut deaths = [0; 11].to_vec();
        deaths.extend([220; 11]);
        let mut expected = [0; 10].to_vec();
        expected.push(20);
        assert_eq!(waits(2, &deaths), expected.repeat(2));
        assert_eq!(waits(2, &(0..100).map(|number| number * 20).collect::<Vec<_>>()), [0; 100]);
    }

    #[test]
    fn all_workers_of_a_large_application_are_replaced_at_once() {
        let mut expected = [0; 100].to_vec();
        expected.push(20);
        assert_eq!(waits(100, &[0; 101]), expected);
    }
}
