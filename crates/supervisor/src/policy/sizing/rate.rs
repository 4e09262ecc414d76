//! How many requests a number of workers finishes per second while it is loaded.
//!
//! A window begins when the number of workers has settled. It begins again when the number changes, or after some time
//! without load: then the rate is that of the arrivals. A window contains the last moments only.

use std::time::{Duration, Instant};

/// The window.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateWindow {
    workers: usize,
    /// When the number became this one.
    settled: Option<Instant>,
    /// The beginning of the window, a later measurement at which the next window may begin, and the latest measurement.
    marks: Option<[Mark; 3]>,
    /// When the workers were last loaded.
    loaded: Option<Instant>,
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    finished: u64,
    /// The busy workers of all measurements until now, added up, and how many measurements these were.
    busy: usize,
    count: usize,
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many workers there were.
    pub workers: usize,
    /// How many of them were busy on average.
    pub busy: f64,
    /// How many requests they finished per second.
    pub per_second: f64,
}

/// A new number of workers has this time to take effect.
const SETTLE: Duration = Duration::from_millis(30);
/// The length of a window.
const LENGTH: Duration = Duration::from_millis(250);
/// The least number of requests, for each worker.
const REQUESTS_OF_WORKER: u64 = 1;
/// After this time without load, the window begins again.
const LULL: Duration = Duration::from_millis(600);

// === impl RateWindow ===

impl RateWindow {
    /// `workers` serve, of which `busy` have a request; they have finished this number of requests since the start of
    /// the application.
    pub fn record(&mut self, workers: usize, busy: usize, finished: u64, is_loaded: bool, now: Instant) {
        if is_loaded {
            self.loaded = Some(now);
        }
        if self.workers != workers || !self.is_loaded(now) {
            *self = RateWindow { workers, settled: Some(now), loaded: self.loaded, ..RateWindow::default() };
        }
        let settled = self.settled.is_some_and(|at| now.saturating_duration_since(at) >= SETTLE);
        if !settled {
            return;
        }
        let (sum, count) = self.marks.map_or((0, 0), |[.., latest]| (latest.busy, latest.count));
        let latest = Mark { at: now, finished, busy: sum + busy, count: count + 1 };
        let [mut start, mut next, _] = self.marks.unwrap_or([latest; 3]);
        if self.is_long(next, latest) {
            (start, next) = (next, latest);
        }
        self.marks = Some([start, next, latest]);
    }

    /// Whether the workers were loaded a moment ago.
    pub fn is_loaded(&self, now: Instant) -> bool {
        self.loaded.is_some_and(|at| now.saturating_duration_since(at) < LULL)
    }

    /// The rate, once the window is long enough.
    pub fn rate(&self) -> Option<Rate> {
        let [start, _, latest] = self.marks?;
        let length = (latest.at - start.at).as_secs_f64();
        self.is_long(start, latest).then(|| Rate {
            workers: self.workers,
            busy: (latest.busy - start.busy) as f64 / (latest.count - start.count).max(1) as f64,
            per_second: latest.finished.saturating_sub(start.finished) as f64 / length,
        })
    }

    fn is_long(&self, from: Mark, until: Mark) -> bool {
        let finished = until.finished.saturating_sub(from.finished);
        until.at - from.at >= LENGTH && finished >= self.workers as u64 * REQUESTS_OF_WORKER
    }

    /// Begins again: the next rate contains nothing of the past.
    pub fn restart(&mut self) {
        self.marks = None;
    }
}
