//! How long requests wait for a worker, and which of them are rejected with 503. Pure: a function of events and their
//! times.
//!
//! The queue is bounded in time: a request that no worker has taken within `limits/queue_timeout` is rejected. Nothing
//! else rejects a request, except in a lasting overload: then a long queue makes all requests slow and completes no more
//! of them, so the standing delay is kept low, as CoDel does ("Controlling Queue Delay", K. Nichols and V. Jacobson, ACM
//! Queue 10(5), 2012). New requests are rejected while half of the bound is queued, and requests that have waited for the
//! whole bound are rejected too. Unlike CoDel's packets, requests are rejected when they come: no client waits for a
//! rejection.
//!
//! Rejecting can cause the overload that it answers: a client that comes again at once costs more than one that waits,
//! takes the processors from PHP, and so on as long as clients come ("Metastable Failures in Distributed Systems",
//! N. Bronson et al., HotOS 2021). Three rules prevent this:
//!
//! - An overload begins only when the wait is a good part ([`BEGIN`]) of the longest one, after the number of waiting
//!   requests has grown in [`LASTING`] windows in sequence. Clients that wait for each answer before the next request make
//!   it grow once, at their start. A burst does not make it grow twice. The speed of the queue is the best of the last
//!   [`RATES`] windows, so that one disturbed second proves nothing.
//! - During an overload, some windows *hold* requests instead of rejecting them. If far fewer requests come then, the
//!   clients only came again after rejections: they were no new demand. The overload ends, and all requests wait in the
//!   queue. Clients that pause before they come again are found by longer holds. Another overload begins later then.
//! - Rejections are paced: see [`super::refusals`].
//!
//! `coming` and `finished` are counted in windows of [`WINDOW`], and only while requests wait: then the number of finished
//! requests per second is the capacity. At other times the capacity is unknown. A worker also finishes the request of a
//! client that left.

use std::collections::VecDeque;
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
    overload: Option<Overload>,
    /// For how many windows in sequence the queue must grow to be overloaded.
    lasting: u32,
    /// The window in which a request was last rejected.
    rejected_in: Option<Instant>,
    random: u32,
}

#[derive(Clone, Debug)]
struct Standing {
    /// When this window began.
    window: Instant,
    /// How many requests waited then.
    waiting: u64,
    coming: u64,
    finished: u64,
    /// How many requests were finished per second in the last windows.
    rates: VecDeque<f64>,
    /// For how many windows in sequence the queue has grown.
    growing: u32,
}

#[derive(Clone, Copy, Debug)]
struct Overload {
    since: Instant,
    rejected: u64,
    /// How many more requests came per second than were finished, in the last window that rejected.
    excess: f64,
    /// The windows of the hold that are left; 0 if none runs.
    holding: u32,
    next_hold: Instant,
    pause: Duration,
    /// How many windows the next hold has.
    windows: u32,
}

/// The state of a generation when a request comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// How many requests wait for a worker.
    pub waiting: u64,
    /// How many workers there are.
    pub workers: u64,
    /// How many requests these run at a time.
    pub places: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may wait for this time.
    Admit(Duration),
    /// It waits for another decision.
    Hold,
    /// It is rejected.
    Reject(TooBusy),
}

/// The request would wait too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBusy {
    /// When to try again, in seconds.
    pub retry_after: u32,
}

/// A change of the decisions about requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverloadEvent {
    /// Requests are rejected from now on; this number is completed per second.
    Overloaded { per_second: f64 },
    /// Requests are held from now on, or no longer.
    HoldChanged,
    /// The overload is over.
    Recovered { after: Duration, rejected: u64 },
}

/// The time over which requests are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// The number of windows with a growing queue that make an overload a lasting one.
const LASTING: u32 = 4;
/// The same after the clients of an overload turned out to be those that were rejected before.
const LONGEST_LASTING: u32 = 64;
/// The number of windows whose best rate is the speed of the queue.
const RATES: usize = 5;
/// The bound of the standing delay, as a share of the longest wait.
const BOUND: u32 = 10;
/// An overload begins at this share of the longest wait.
const BEGIN: f64 = 0.4;
/// The queue grows if it grows by this share of the finished requests.
const GROWTH: f64 = 0.1;
/// The least number of finished requests that makes a rate known.
const KNOWN: u64 = 8;
/// The longest window: after it, even fewer finished requests make a rate known.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);
/// The longest waits of requests differ by up to this part, if not all can be served in time.
const FAIR: f64 = 4.0;
const SEED: u32 = 0x9E37_79B9;
/// The largest `Retry-After`, in seconds.
const LONGEST_RETRY: f64 = 60.0;
/// The clients came again after rejections if at most this share of the excess comes while requests are held.
const RETURNING: f64 = 0.5;
/// The pause before the first hold. Each further one is this many times longer.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGER: u32 = 4;
/// The longest pause between two holds.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The longest hold, in windows: clients that pause for two seconds have come again before its end.
const LONGEST_HOLD: u32 = 3;

// === impl Queue ===

impl Queue {
    /// A queue in which no request waits longer than this.
    pub fn new(timeout: Duration) -> Queue {
        Queue { timeout, standing: None, overload: None, lasting: LASTING, rejected_in: None, random: SEED }
    }

    /// Counts a request that comes, after a [`measure`](Queue::measure), and decides about it.
    pub fn enqueue(&mut self, arrival: Arrival) -> Verdict {
        if let Some(standing) = &mut self.standing {
            standing.coming += 1;
        }
        match self.forecast(arrival) {
            Verdict::Admit(longest) => Verdict::Admit(self.fair(longest)),
            other => other,
        }
    }

    /// Makes the longest wait of each request a little shorter, by chance, if not all of them can be served in time. If
    /// all were the same, clients that come again after a rejection would stay behind those that are served.
    fn fair(&mut self, longest: Duration) -> Duration {
        let (Some(standing), Some(rejected_in)) = (&self.standing, self.rejected_in) else { return longest };
        if standing.window.saturating_duration_since(rejected_in) > self.timeout * 2 {
            return longest;
        }
        // G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        longest - longest.mul_f64(f64::from(self.random) / f64::from(u32::MAX) / FAIR)
    }

    /// Counts a request that was rejected, when it came or after it had waited.
    pub fn rejected(&mut self) {
        self.rejected_in = self.standing.as_ref().map(|standing| standing.window).or(self.rejected_in);
        if let Some(overload) = &mut self.overload {
            overload.rejected += 1;
        }
    }

    /// The decision that [`Queue::enqueue`] would make.
    pub fn forecast(&self, arrival: Arrival) -> Verdict {
        let (Some(overload), Some(rate)) = (self.overload, self.standing.as_ref().and_then(Standing::rate)) else {
            return Verdict::Admit(self.timeout);
        };
        let wait = arrival.waiting as f64 / rate;
        // One request per place may always wait, so that no place is idle.
        if wait <= (self.bound() / 2).as_secs_f64() || arrival.waiting < arrival.places {
            Verdict::Admit(self.timeout)
        } else if overload.holding > 0 {
            Verdict::Hold
        } else {
            Verdict::Reject(TooBusy { retry_after: wait.clamp(1.0, LONGEST_RETRY).ceil() as u32 })
        }
    }

    /// Measures how the queue moves while this number of requests waits.
    pub fn measure(&mut self, waiting: u64, now: Instant) -> Option<OverloadEvent> {
        // The end of an overload is the result of a window. It is not enough that late requests have been rejected.
        if waiting == 0 && self.overload.is_none() {
            (self.standing, self.lasting) = (None, LASTING);
            return None;
        }
        let long = self.timeout.as_secs_f64() * BEGIN;
        let standing = self.standing.get_or_insert_with(|| Standing::new(waiting, now));
        let length = now.saturating_duration_since(standing.window);
        let is_known = standing.finished >= KNOWN || length >= LONGEST_WINDOW;
        if length < WINDOW || !(is_known || waiting == 0) {
            return None;
        }
        let length = length.as_secs_f64();
        let (coming, finished) = (standing.coming as f64 / length, standing.finished as f64 / length);
        let has_grown = waiting as f64 > standing.waiting as f64 + standing.finished as f64 * GROWTH;
        standing.next(finished, waiting, now);
        let rate = standing.rate();
        let is_long = rate.is_some_and(|rate| waiting as f64 > rate * long);
        standing.growing = if has_grown { standing.growing + 1 } else { 0 };
        match &mut self.overload {
            None if is_long && standing.growing >= self.lasting => {
                self.overload = Some(Overload::new(coming - finished, now));
                Some(OverloadEvent::Overloaded { per_second: finished })
            }
            None => None,
            Some(overload) => match overload.next(coming, finished, now) {
                Next::Same => None,
                Next::HoldChanged => Some(OverloadEvent::HoldChanged),
                Next::Over => {
                    let Overload { since, rejected, holding, .. } = *overload;
                    self.lasting = if holding > 0 { (self.lasting * 2).min(LONGEST_LASTING) } else { LASTING };
                    self.overload = None;
                    Some(OverloadEvent::Recovered { after: now.saturating_duration_since(since), rejected })
                }
            },
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
        if self.overload.is_some() { allowed.min(self.bound()) } else { allowed }
    }

    fn bound(&self) -> Duration {
        self.timeout / BOUND
    }

    /// Whether requests have been waiting, or are rejected. If not, and none wait, a request may wait for the whole
    /// timeout.
    pub fn is_standing(&self) -> bool {
        self.standing.is_some() || self.overload.is_some()
    }
}

// === impl Standing ===

impl Standing {
    fn new(waiting: u64, now: Instant) -> Standing {
        Standing { window: now, waiting, coming: 0, finished: 0, rates: VecDeque::new(), growing: 0 }
    }

    /// Begins another window. The last one had this rate.
    fn next(&mut self, rate: f64, waiting: u64, now: Instant) {
        if self.rates.len() == RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        (self.window, self.waiting, self.coming, self.finished) = (now, waiting, 0, 0);
    }

    /// The speed of the queue, in requests per second; `None` while it is unknown.
    fn rate(&self) -> Option<f64> {
        self.rates.iter().copied().reduce(f64::max).filter(|rate| *rate > 0.0)
    }
}

// === impl Overload ===

/// The result of a window of an overload.
enum Next {
    Same,
    HoldChanged,
    Over,
}

impl Overload {
    fn new(excess: f64, now: Instant) -> Overload {
        let (next_hold, pause) = (now + FIRST_PAUSE, FIRST_PAUSE);
        Overload { since: now, rejected: 0, excess, holding: 0, next_hold, pause, windows: 1 }
    }

    /// Judges a window by the requests that came and were finished per second.
    fn next(&mut self, coming: f64, finished: f64, now: Instant) -> Next {
        let excess = coming - finished;
        let most = if self.holding > 0 { self.excess * RETURNING } else { 0.0 };
        if excess <= most.max(finished * GROWTH) {
            return Next::Over;
        }
        match self.holding {
            0 => self.excess = excess,
            1 => {
                self.holding = 0;
                self.pause = (self.pause * LONGER).min(LONGEST_PAUSE);
                self.windows = (self.windows + 1).min(LONGEST_HOLD);
                self.next_hold = now + self.pause;
                return Next::HoldChanged;
            }
            _ => self.holding -= 1,
        }
        if self.holding == 0 && self.next_hold <= now {
            self.holding = self.windows;
            return Next::HoldChanged;
        }
        Next::Same
    }
}

// === impl OverloadEvent ===

impl OverloadEvent {
    /// Whether the operator should know of it.
    pub fn is_news(&self) -> bool {
        !matches!(self, OverloadEvent::HoldChanged)
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
            OverloadEvent::HoldChanged => write!(f, "requests are held in place of a rejection, or no longer"),
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
