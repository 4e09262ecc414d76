//! The largest useful number of workers in each second of the last minutes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The numbers, each with the time at which its second began.
#[derive(Clone, Debug, Default)]
pub struct Peaks {
    peaks: VecDeque<(Instant, usize)>,
}

/// How long useful workers are kept.
pub const KEEP_TIME: Duration = Duration::from_secs(600);
/// One number is stored for each period of this length.
pub const PERIOD: Duration = Duration::from_secs(1);

// === impl Peaks ===

impl Peaks {
    /// This number is useful now.
    pub fn record(&mut self, useful: usize, now: Instant) {
        while self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > KEEP_TIME) {
            self.peaks.pop_front();
        }
        match self.peaks.back_mut() {
            Some((at, peak)) if now.saturating_duration_since(*at) < PERIOD => *peak = useful.max(*peak),
            _ => self.peaks.push_back((now, useful)),
        }
    }

    /// The largest number, and how long ago that was; the latest of equal numbers.
    pub fn largest(&self, now: Instant) -> Option<(usize, Duration)> {
        let peak = self.peaks.iter().max_by_key(|(_, peak)| *peak);
        peak.map(|(at, peak)| (*peak, now.saturating_duration_since(*at)))
    }

    /// Whether they cover [`KEEP_TIME`].
    pub fn are_complete(&self, now: Instant) -> bool {
        self.peaks.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) + PERIOD >= KEEP_TIME)
    }
}
