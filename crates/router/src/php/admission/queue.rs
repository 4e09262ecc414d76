//! How long requests wait for a worker, and which of them are rejected with 503. Pure: a function of events and their
//! times.
//!
//! The queue is bounded in time. A request that cannot start within `limits/queue_timeout` is rejected: at once if the
//! speed of the queue shows it, and at the latest when the time has passed.
//!
//! Under lasting overload, when more requests come than are finished, a long queue makes all of them slow and completes
//! no more. The standing delay is therefore kept low, as CoDel does ("Controlling Queue Delay", K. Nichols and V. Jacobson,
//! ACM Queue 10(5), 2012): once the delay has stood above a bound while the queue grew for [`LASTING`] windows, new
//! requests are rejected while half the bound is queued, and requests that have waited for the whole bound are rejected
//! too. Unlike CoDel's packets, requests are rejected when they come: no client waits for a rejection. A burst is queued,
//! and so are clients that wait for each answer before the next request: they do not come faster than they are answered.
//!
//! `coming` and `finished` are counted in windows of [`WINDOW`], and only while requests wait: then the number of finished
//! requests per second is the capacity. At other times the capacity is unknown. A worker also finishes the request of a
//! client that left.

use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The policy and its state.
#[derive(Debug)]
pub struct Queue {
    /// The longest wait.
    timeout: Duration,
    /// The measurements, while requests wait.
    standing: Option<Standing>,
    /// The overload, while requests are rejected because of it.
    shedding: Option<Shedding>,
}

#[derive(Clone, Copy, Debug)]
struct Standing {
    /// When this window began.
    window: Instant,
    coming: u64,
    finished: u64,
    /// How many requests are finished per second, once that is known.
    rate: Option<f64>,
    /// For how many windows the delay has stood above the bound while the queue grew.
    overloaded: u32,
}

#[derive(Clone, Copy, Debug)]
struct Shedding {
    since: Instant,
    rejected: u64,
}

/// The state of a generation when a request comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// How many requests wait for a worker.
    pub waiting: u64,
    /// How many workers there are.
    pub workers: u64,
}

/// The request would wait too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBusy {
    /// When to try again, in seconds.
    pub retry_after: u32,
}

/// The beginning or the end of an overload. The operator should know of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverloadEvent {
    /// Requests are rejected from now on; this number is completed per second.
    Overloaded { per_second: f64 },
    /// The overload is over.
    Recovered { after: Duration, rejected: u64 },
}

/// The time over which requests are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// The number of overloaded windows that make an overload a lasting one.
const LASTING: u32 = 2;
/// The bound of the standing delay, as a share of the longest wait.
const BOUND: u32 = 10;
/// The queue grows if this many times more requests come than are finished.
const GROWTH: f64 = 1.1;
/// The least number of finished requests that makes a rate known.
const KNOWN: u64 = 8;
/// The longest window: after it, even fewer finished requests make a rate known.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);
/// The largest `Retry-After`, in seconds.
const LONGEST_RETRY: f64 = 60.0;

// === impl Queue ===

impl Queue {
    /// A queue in which no request waits longer than this.
    pub fn new(timeout: Duration) -> Queue {
        Queue { timeout, standing: None, shedding: None }
    }

    /// Counts a request that comes, after a [`measure`](Queue::measure). Returns how long it may wait.
    ///
    /// # Errors
    /// When its turn will not come in time.
    pub fn enqueue(&mut self, arrival: Arrival) -> Result<Duration, TooBusy> {
        if let Some(standing) = &mut self.standing {
            standing.coming += 1;
        }
        self.forecast(arrival)
    }

    /// Counts a request that was rejected, when it came or after it had waited.
    pub fn rejected(&mut self) {
        if let Some(shedding) = &mut self.shedding {
            shedding.rejected += 1;
        }
    }

    /// The result that [`Queue::enqueue`] would have.
    ///
    /// # Errors
    /// When the request's turn will not come in time.
    pub fn forecast(&self, arrival: Arrival) -> Result<Duration, TooBusy> {
        let longest = self.timeout;
        let Some(rate) = self.standing.and_then(|standing| standing.rate) else { return Ok(longest) };
        let wait = arrival.waiting as f64 / rate;
        let allowed = match self.shedding {
            Some(_) => longest.min(self.bound() / 2),
            None => longest,
        };
        // One request per worker may always wait, so that no worker is idle.
        if wait <= allowed.as_secs_f64() || (self.shedding.is_some() && arrival.waiting < arrival.workers) {
            return Ok(longest);
        }
        Err(TooBusy { retry_after: wait.clamp(1.0, LONGEST_RETRY).ceil() as u32 })
    }

    /// Measures how the queue moves while this number of requests waits.
    pub fn measure(&mut self, waiting: u64, now: Instant) -> Option<OverloadEvent> {
        // The end of an overload is the result of a window. It is not enough that late requests have been rejected.
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
                self.shedding = Some(Shedding { since: now, rejected: 0 });
                Some(OverloadEvent::Overloaded { per_second })
            }
            (Some(_), _) if !is_growing => self.recover(now),
            _ => None,
        }
    }

    /// Counts finished requests.
    pub fn finished(&mut self, count: u64) {
        if let Some(standing) = &mut self.standing {
            standing.finished += count;
        }
    }

    /// Removes a request from the count of those that came: it was cancelled while it waited, because its client left.
    pub fn cancel(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.coming = standing.coming.saturating_sub(1);
        }
    }

    /// How long a request may wait now that may otherwise wait for `allowed`.
    pub fn longest_wait(&self, allowed: Duration) -> Duration {
        if self.shedding.is_some() { allowed.min(self.bound()) } else { allowed }
    }

    fn bound(&self) -> Duration {
        self.timeout / BOUND
    }

    /// Whether requests have been waiting, or are rejected. If not, and none wait, a request may wait for the whole
    /// timeout.
    pub fn is_standing(&self) -> bool {
        self.standing.is_some() || self.shedding.is_some()
    }

    fn recover(&mut self, now: Instant) -> Option<OverloadEvent> {
        let Shedding { since, rejected } = self.shedding.take()?;
        Some(OverloadEvent::Recovered { after: now.saturating_duration_since(since), rejected })
    }
}

impl fmt::Display for OverloadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverloadEvent::Overloaded { per_second } => write!(
                f,
                "overloaded: completing {per_second:.0} requests/s, rejecting the excess with 503; `howdah status` shows \
                 the workers"
            ),
            OverloadEvent::Recovered { after, rejected } => {
                write!(
                    f,
                    "the overload is over after {:.0} s: {rejected} requests were answered 503",
                    after.as_secs_f64()
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
