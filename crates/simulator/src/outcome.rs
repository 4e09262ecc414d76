//! The result of a simulation.

use std::time::Duration;

/// The events of a simulation, counted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In each [`PERIOD`] of the simulation.
    pub periods: Vec<Period>,
    /// All good answers, in their order.
    pub answers: Vec<Answer>,
    /// The most workers that existed at any time, with those that were being started or were leaving.
    pub most_workers: usize,
    /// How often the number of workers shrank after it had grown, or grew after it had shrunk.
    pub turns: usize,
    /// How many requests waited in the queue at the end.
    pub waiting: usize,
}

/// The counts of one [`PERIOD`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// How many requests were answered 200.
    pub ok: usize,
    /// How many requests were answered 503.
    pub rejected: usize,
    /// How many clients left the queue.
    pub left: usize,
    /// How many workers there were at its end, with those that were being started, without those that left.
    pub workers: usize,
}

/// A good answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When the client had it.
    pub at: Duration,
    /// How long that took since it sent the request.
    pub took: Duration,
}

/// The resolution of [`Outcome::periods`].
pub const PERIOD: Duration = Duration::from_millis(100);

// === impl Outcome ===

impl Outcome {
    /// Good answers per second between two times.
    pub fn ok_per_second(&self, from: Duration, until: Duration) -> f64 {
        let ok: usize = self.between(from, until).iter().map(|period| period.ok).sum();
        ok as f64 / (until - from).as_secs_f64()
    }

    /// The answers 503 and the clients that left between two times.
    pub fn errors(&self, from: Duration, until: Duration) -> usize {
        self.between(from, until).iter().map(|period| period.rejected + period.left).sum()
    }

    /// How many workers there were at this time.
    pub fn workers_at(&self, time: Duration) -> usize {
        self.between(time, time + PERIOD).first().or(self.periods.last()).map_or(0, |period| period.workers)
    }

    /// The most workers that stayed at the end of a period between two times.
    pub fn most_workers_between(&self, from: Duration, until: Duration) -> usize {
        self.between(from, until).iter().map(|period| period.workers).max().unwrap_or_default()
    }

    /// The time in which this share of the good answers between two times came, from 0 to 1; zero without answers.
    pub fn percentile(&self, share: f64, from: Duration, until: Duration) -> Duration {
        let mut times: Vec<_> =
            self.answers.iter().filter(|it| (from..until).contains(&it.at)).map(|answer| answer.took).collect();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        times.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }

    fn between(&self, from: Duration, until: Duration) -> &[Period] {
        let index = |time: Duration| (time.as_nanos() / PERIOD.as_nanos()) as usize;
        let end = index(until).min(self.periods.len());
        &self.periods[index(from).min(end)..end]
    }
}
