//! More workers must prove themselves: by the requests that were finished per second before and after.
//!
//! Two kinds of trials. [`Growth`] follows a growth that the measurements of requests justify, which may be large: if
//! it brought less than it should, workers are retired, and restored if the number that is left is worse. [`Probe`]
//! tries a few workers more, or fewer, where the measurements cannot show which number is better. A number that did not
//! prove itself is tried again after a pause, which grows with each failure.

use super::rate::Rate;
use std::time::{Duration, Instant};

/// A pause that grows with each failure.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    length: Duration,
    until: Option<Instant>,
}

/// A trial of many workers.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    state: GrowthState,
    /// The largest number that proved itself, until the pause ends.
    ceiling: Option<usize>,
    pause: Pause,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum GrowthState {
    #[default]
    Resting,
    /// There are more workers than before. This was the rate before.
    Trying { before: Rate },
    /// They brought less than they should, and were retired. The number that is left has to show its rate, because the
    /// requests may be other ones than before.
    Confirming { tried: Rate },
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The number of workers before it, with their rate.
    pub before: Rate,
    /// The number that was tried, with its rate.
    pub tried: Rate,
    /// How many workers to keep.
    pub keep: usize,
}

/// A trial of a few workers more or fewer.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    state: ProbeState,
    /// When this state must end, even without a result.
    ends: Option<Instant>,
    /// Before more are tried again, and fewer.
    more: Pause,
    fewer: Pause,
}

/// The numbers of workers that a [`Probe`] may try.
#[derive(Clone, Copy, Debug)]
pub struct Candidates {
    /// More than now.
    pub more: Option<usize>,
    /// Fewer than now.
    pub fewer: Option<usize>,
    /// How many times as much fewer workers must finish.
    pub gain_of_fewer: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum ProbeState {
    #[default]
    Resting,
    /// `to` workers have to show their rate.
    Trying { before: Rate, to: usize },
    /// It looked good: the number from before has to show its rate once more, because the load may have changed.
    Confirming { before: Rate, tried: Rate },
}

/// More workers must finish more by this factor.
const GAIN: f64 = 1.03;
/// Fewer workers that finish this share of the requests are as good: a smaller difference cannot be measured beside other
/// programs.
pub const NO_LOSS: f64 = 0.97;
/// The same for a growth that may be large.
const GAIN_OF_GROWTH: f64 = 1.05;
/// This many times the workers are kept that a growth needed.
const RESERVE_OF_GROWTH: f64 = 2.0;
/// A trial of a few workers that takes longer is given up: each worker has too few requests.
const LONGEST_PROBE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

// === impl Pause ===

impl Default for Pause {
    fn default() -> Pause {
        Pause { length: FIRST_PAUSE, until: None }
    }
}

impl Pause {
    /// Whether it is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Begins, twice as long as the last one.
    pub fn on_failure(&mut self, now: Instant) {
        self.until = Some(now + self.length);
        self.length = (self.length * 2).min(LONGEST_PAUSE);
    }
}

// === impl Growth ===

impl Growth {
    /// More workers are started. `rate` is that of the workers before, if it is known.
    pub fn begin(&mut self, rate: Option<Rate>) {
        self.state = match (self.state, rate) {
            (GrowthState::Trying { before }, _) | (_, Some(before)) => GrowthState::Trying { before },
            (_, None) => GrowthState::Resting,
        };
    }

    /// Whether a trial is under way.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, GrowthState::Trying { .. })
    }

    /// Whether the number that is left after a failure shows its rate.
    pub fn is_confirming(&self) -> bool {
        matches!(self.state, GrowthState::Confirming { .. })
    }

    /// Whether a rate decides: that of the new number, or that of the number that is left.
    pub fn awaits_rate(&self) -> bool {
        self.state != GrowthState::Resting
    }

    /// No request waits, and workers are idle: they were of use.
    pub fn on_lull(&mut self) {
        self.state = GrowthState::Resting;
    }

    /// The requests are other ones now.
    pub fn forget(&mut self) {
        (self.state, self.ceiling) = (GrowthState::Resting, None);
    }

    /// The largest number of workers.
    pub fn ceiling(&mut self, now: Instant) -> usize {
        if self.pause.is_over(now) {
            self.ceiling = None;
        }
        self.ceiling.unwrap_or(usize::MAX)
    }

    /// More workers than this finish less.
    pub fn fail(&mut self, keep: usize, now: Instant) {
        self.pause.on_failure(now);
        self.ceiling = Some(keep);
    }

    /// Judges by the rate of all the workers, once that is known.
    ///
    /// By Little's law, twice the rate needs twice the busy workers, if each request takes as long as before. If more
    /// are busy, the others only wait at another bottleneck.
    ///
    /// After a failure, the number that is left is judged in the same way by its rate, and the other workers are
    /// restored if they proved themselves: the requests before may have been other ones.
    pub fn judge(&mut self, rate: Option<Rate>, now: Instant) -> Option<Verdict> {
        let rate = rate?;
        let (before, tried) = match self.state {
            GrowthState::Trying { before } if before.workers < rate.workers => (before, rate),
            GrowthState::Confirming { tried } if rate.workers < tried.workers => (rate, tried),
            GrowthState::Trying { .. } | GrowthState::Resting => return None,
            GrowthState::Confirming { .. } => {
                self.state = GrowthState::Resting;
                return None;
            }
        };
        let is_confirming = self.is_confirming();
        self.state = GrowthState::Resting;
        let gain = tried.per_second / before.per_second.max(f64::MIN_POSITIVE);
        let gain = if gain < GAIN_OF_GROWTH { 1.0 } else { gain * RESERVE_OF_GROWTH };
        let needed = (before.busy * gain).ceil().max(before.workers as f64);
        let keep = if tried.busy > needed { (needed as usize).min(tried.workers) } else { tried.workers };
        match keep < tried.workers {
            true if is_confirming => self.ceiling = Some(keep),
            true => {
                self.state = GrowthState::Confirming { tried };
                self.fail(keep, now);
            }
            false => (self.ceiling, self.pause) = (None, Pause::default()),
        }
        Some(Verdict { before, tried, keep })
    }
}

// === impl Probe ===

impl Probe {
    /// How many workers there should be now, of which there are `workers`, with their rate if it is known. The last
    /// trial's verdict is returned when there is one.
    pub fn step(
        &mut self,
        workers: usize,
        rate: Option<Rate>,
        candidates: Candidates,
        now: Instant,
    ) -> (usize, Option<Verdict>) {
        let rate = rate.filter(|rate| rate.workers == workers);
        if let ProbeState::Trying { before, to } = self.state
            && !self.is_under_way(now)
        {
            self.end(before, Rate { workers: to, per_second: 0.0, ..before }, before.workers, now);
            return (before.workers, None);
        }
        match self.state {
            ProbeState::Resting => {
                let Some(before) = rate else { return (workers, None) };
                let more = candidates.more.filter(|_| self.more.is_over(now));
                let Some(to) = more.or_else(|| candidates.fewer.filter(|_| self.fewer.is_over(now))) else {
                    return (workers, None);
                };
                self.state = ProbeState::Trying { before, to };
                self.ends = Some(now + LONGEST_PROBE);
                (to, None)
            }
            ProbeState::Trying { before, to } => {
                let Some(tried) = rate.filter(|_| workers == to) else { return (to, None) };
                // Fewer workers that are as good need no second proof: they cost less.
                let is_cheaper = to < before.workers && candidates.gain_of_fewer < 1.0;
                if candidates.is_better(before, tried) && is_cheaper {
                    return (to, Some(self.end(before, tried, to, now)));
                }
                if candidates.is_better(before, tried) {
                    self.state = ProbeState::Confirming { before, tried };
                    self.ends = Some(now + LONGEST_PROBE);
                    return (before.workers, None);
                }
                (before.workers, Some(self.end(before, tried, before.workers, now)))
            }
            ProbeState::Confirming { before, tried } => {
                let Some(again) = rate.filter(|_| workers == before.workers) else { return (before.workers, None) };
                let before = Rate { per_second: (before.per_second + again.per_second) / 2.0, ..before };
                let keep = if candidates.is_better(before, tried) { tried.workers } else { before.workers };
                (keep, Some(self.end(before, tried, keep, now)))
            }
        }
    }

    /// Whether a trial is under way, and still has time.
    pub fn is_under_way(&self, now: Instant) -> bool {
        self.state != ProbeState::Resting && self.ends.is_some_and(|ends| now < ends)
    }

    /// Gives a trial up. Returns how many workers to keep at most.
    pub fn abandon(&mut self) -> Option<usize> {
        match std::mem::take(&mut self.state) {
            ProbeState::Resting => None,
            ProbeState::Trying { before, .. } | ProbeState::Confirming { before, .. } => Some(before.workers),
        }
    }

    fn end(&mut self, before: Rate, tried: Rate, keep: usize, now: Instant) -> Verdict {
        self.state = ProbeState::Resting;
        let is_more = tried.workers > before.workers;
        let (tried_way, other_way) =
            if is_more { (&mut self.more, &mut self.fewer) } else { (&mut self.fewer, &mut self.more) };
        if keep == before.workers {
            tried_way.on_failure(now);
        } else {
            // The way back was just measured.
            *tried_way = Pause::default();
            *other_way = Pause::default();
            other_way.on_failure(now);
        }
        Verdict { before, tried, keep }
    }
}

// === impl Candidates ===

impl Candidates {
    fn is_better(&self, before: Rate, tried: Rate) -> bool {
        let gain = if tried.workers > before.workers { GAIN } else { self.gain_of_fewer };
        tried.per_second >= before.per_second * gain
    }
}
