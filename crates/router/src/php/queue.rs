//! How long requests wait for a worker, and which of them are refused. Pure: it is told what happens and when.
//!
//! The queue is bounded in time. Who cannot start within `limits/queue_timeout` is refused: at once if that can be foreseen
//! from how fast the queue moves, at the latest when the time has passed.
//!
//! Under lasting overload, when more requests come than are finished, a long queue makes all of them slow and none more.
//! So the standing delay is kept low, as CoDel does ("Controlling Queue Delay", K. Nichols and V. Jacobson, ACM Queue 10(5),
//! 2012): once the delay has stood above a bound while the queue grew for [`LASTING`] windows, new requests are refused
//! as long as half the bound is queued, and those that have waited for the whole bound are given up. Unlike CoDel's
//! packets, requests are refused when they come: nobody waits for a refusal. A burst, and clients that each wait for their
//! answer before they ask again, are queued: they do not come faster than they are answered.
//!
//! `coming` and `finished` are counted in windows of [`WINDOW`], and only while requests wait: what is finished per second is
//! the capacity then, and nothing is known of it otherwise. A worker finishes the request of a client that left, too.

use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The policy, and what it remembers.
#[derive(Debug)]
pub struct Queue {
    /// Never longer than this.
    timeout: Duration,
    /// Since when requests have been waiting.
    standing: Option<Standing>,
    /// Since when requests are refused for lasting overload, and how many were.
    shedding: Option<Shedding>,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    /// When this window began.
    window: Instant,
    coming: u64,
    finished: u64,
    /// How many requests are finished in a second, once that is known.
    rate: Option<f64>,
    /// For so many windows the delay has stood above the bound while the queue grew.
    overloaded: u32,
}

#[derive(Clone, Copy, Debug)]
struct Shedding {
    since: Instant,
    refused: u64,
}

/// What is known when a request comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// How many requests wait for a worker.
    pub waiting: u64,
    /// How many workers there are.
    pub workers: u64,
    /// How long its client will wait, if it has said so.
    pub patience: Option<Duration>,
}

/// It is not worth waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBusy {
    /// When to try again, in seconds.
    pub retry_after: u32,
}

/// What an operator should hear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum News {
    /// Requests are refused from now on: so many are finished in a second.
    Overloaded { per_second: f64 },
    /// That is over, after so long and so many refusals.
    Recovered { after: Duration, refused: u64 },
}

/// What comes and what is finished is counted for so long at a time.
const WINDOW: Duration = Duration::from_secs(1);
/// After so many windows of overload it is called lasting.
const LASTING: u32 = 2;
/// The bound of the standing delay, as a share of the longest wait.
const BOUND: u32 = 10;
/// So much more must come than is finished for the queue to be one that grows.
const GROWTH: f64 = 1.1;
/// So many requests must have been finished before their number says anything.
const KNOWN: u64 = 8;
/// Who would not wait at all has a worker that is idle, all the same: it must only wake.
const LEAST_WAIT: Duration = Duration::from_millis(20);
/// Longer than this nothing is remembered of how fast requests are finished.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);
/// Nobody is told to stay away for longer, in seconds.
const LONGEST_RETRY: f64 = 60.0;

/// How long a client waits at most that has said how long it would.
pub fn longest(patience: Option<Duration>, timeout: Duration) -> Duration {
    patience.map_or(timeout, |patience| patience.max(LEAST_WAIT).min(timeout))
}

// === impl Queue ===

impl Queue {
    /// A queue in which nobody waits for longer than this.
    pub fn new(timeout: Duration) -> Queue {
        Queue { timeout, standing: None, shedding: None }
    }

    /// A request comes, after a [`look`](Queue::look). How long it may wait.
    ///
    /// # Errors
    /// When it will not be its turn in time.
    pub fn arrive(&mut self, arrival: Arrival) -> Result<Duration, TooBusy> {
        if let Some(standing) = &mut self.standing {
            standing.coming += 1;
        }
        self.foresee(arrival)
    }

    /// One was refused, when it came or after it had waited.
    pub fn refused(&mut self) {
        if let Some(shedding) = &mut self.shedding {
            shedding.refused += 1;
        }
    }

    /// What [`Queue::arrive`] would say.
    ///
    /// # Errors
    /// When it will not be its turn in time.
    pub fn foresee(&self, arrival: Arrival) -> Result<Duration, TooBusy> {
        let longest = longest(arrival.patience, self.timeout);
        let Some(rate) = self.standing.and_then(|standing| standing.rate) else { return Ok(longest) };
        let wait = arrival.waiting as f64 / rate;
        let allowed = match self.shedding {
            Some(_) => longest.min(self.bound() / 2),
            None => longest,
        };
        // As many as there are workers may always wait: none shall stand idle.
        if wait <= allowed.as_secs_f64() || (self.shedding.is_some() && arrival.waiting < arrival.workers) {
            return Ok(longest);
        }
        Err(TooBusy { retry_after: wait.clamp(1.0, LONGEST_RETRY).ceil() as u32 })
    }

    /// So many requests wait. Whether that is news.
    pub fn look(&mut self, waiting: u64, now: Instant) -> Option<News> {
        // An overload is over when a window has shown it, not when those that waited too long have been given up.
        if waiting == 0 && self.shedding.is_none() {
            self.standing = None;
            return None;
        }
        let bound = self.bound();
        let standing =
            self.standing.get_or_insert(Standing { window: now, coming: 0, finished: 0, rate: None, overloaded: 0 });
        let length = now.saturating_duration_since(standing.window);
        let is_known = standing.finished >= KNOWN || length >= LONGEST_WINDOW;
        if length < WINDOW || !(is_known || waiting == 0) {
            return None;
        }
        let finished = standing.finished as f64 / length.as_secs_f64();
        let rate = match standing.rate {
            Some(before) => (before + finished) / 2.0,
            None => finished,
        };
        let is_long = waiting as f64 > rate * bound.as_secs_f64();
        let is_growing = standing.coming as f64 > standing.finished as f64 * GROWTH;
        let overloaded = if is_long && is_growing { standing.overloaded + 1 } else { 0 };
        let rate = (rate > 0.0).then_some(rate);
        *standing = Standing { window: now, coming: 0, finished: 0, rate, overloaded };
        match (self.shedding, rate) {
            (None, Some(per_second)) if overloaded >= LASTING => {
                self.shedding = Some(Shedding { since: now, refused: 0 });
                Some(News::Overloaded { per_second })
            }
            (Some(_), _) if !is_growing => self.recover(now),
            _ => None,
        }
    }

    /// So many requests were finished.
    pub fn finished(&mut self, count: u64) {
        if let Some(standing) = &mut self.standing {
            standing.finished += count;
        }
    }

    /// A request that waited was taken back: its client left.
    pub fn left(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.coming = standing.coming.saturating_sub(1);
        }
    }

    /// How long a request may wait that could have waited for so long.
    pub fn longest(&self, allowed: Duration) -> Duration {
        if self.shedding.is_some() { allowed.min(self.bound()) } else { allowed }
    }

    fn bound(&self) -> Duration {
        self.timeout / BOUND
    }

    /// Whether requests have been waiting, or are refused: if not, whoever comes while none wait may wait as long as it
    /// likes.
    pub fn is_standing(&self) -> bool {
        self.standing.is_some() || self.shedding.is_some()
    }

    fn recover(&mut self, now: Instant) -> Option<News> {
        let Shedding { since, refused } = self.shedding.take()?;
        Some(News::Recovered { after: now.saturating_duration_since(since), refused })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Overloaded { per_second } => write!(
                f,
                "more requests come than are finished, which is {per_second:.0} a second: some are answered 503 until that \
                 changes; `howdah status` says what the workers do"
            ),
            News::Recovered { after, refused } => {
                write!(
                    f,
                    "the overload is over after {:.0} s: {refused} requests were answered 503",
                    after.as_secs_f64()
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
