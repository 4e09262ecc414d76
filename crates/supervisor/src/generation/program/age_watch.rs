//! `ttl`: workers that have reached their age are replaced one at a time. Workers of a generation have nearly the same age:
//! together, they would all be missing while the next ones boot.

use howdah_protocol::messages::router::RoadRunnerWorker;
use std::time::{Duration, Instant};

/// The ages of the workers of a generation.
#[derive(Debug)]
pub struct AgeWatch {
    ttl: Duration,
    /// When they are looked at again.
    next: Instant,
    /// The worker that is being replaced.
    leaving: Option<RoadRunnerWorker>,
    /// Whether that is news.
    is_new: bool,
}

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);

// === impl AgeWatch ===

impl AgeWatch {
    /// Workers of this age are replaced.
    pub fn new(ttl: Duration, now: Instant) -> AgeWatch {
        AgeWatch { ttl, next: now + INTERVAL, leaving: None, is_new: false }
    }

    /// When [`Self::on_time`] has something to do.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Looks at the workers if it is time: the number of the start and the time of the start of each, or `None` if the
    /// router does not have it.
    pub fn on_time(&mut self, workers: impl Iterator<Item = Option<(u32, Instant)>>, now: Instant) {
        if self.next > now {
            return;
        }
        self.next = now + INTERVAL;
        let mut oldest: Option<(Instant, RoadRunnerWorker)> = None;
        for (index, worker) in (0..).zip(workers) {
            let Some((start, since)) = worker else { return };
            let worker = RoadRunnerWorker { index, start };
            if self.leaving == Some(worker) {
                return;
            }
            if since + self.ttl <= now && oldest.is_none_or(|(oldest, _)| since < oldest) {
                oldest = Some((since, worker));
            }
        }
        self.leaving = oldest.map(|(_, worker)| worker);
        self.is_new = self.leaving.is_some();
    }

    /// The worker that must be replaced, once.
    pub fn take_aged(&mut self) -> Option<RoadRunnerWorker> {
        std::mem::take(&mut self.is_new).then_some(self.leaving)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_worker_is_replaced_when_all_others_are_ready() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut ages = AgeWatch::new(Duration::from_secs(10), start);
        let (first, second, next) = (Some((1, at(1))), Some((1, at(0))), Some((2, at(11))));
        let worker = |index, start| Some(RoadRunnerWorker { index, start });
        // The time, the workers, and which one must be replaced.
        let cases = [
            (5, [first, second], None),
            (10, [first, second], worker(1, 1)),
            (11, [first, second], None),
            (12, [first, None], None),
            (13, [first, next], worker(0, 1)),
            (14, [None, next], None),
            (15, [Some((2, at(15))), next], None),
            (21, [None, next], None),
            (22, [Some((2, at(15))), next], worker(1, 2)),
        ];
        for (seconds, workers, expected) in cases {
            assert!(ages.deadline() <= at(seconds));
            ages.on_time(workers.into_iter(), at(seconds));
            assert_eq!(ages.take_aged(), expected, "{seconds}");
            assert_eq!(ages.take_aged(), None, "once");
        }
    }
}
