//! The policies that a simulation asks: how many workers there are, and which requests wait. A test implements these
//! traits for the policy under test; the simplest ones are here.
//!
//! All times are durations since the start of the simulation.

use std::fmt::Debug;
use std::time::Duration;

/// Decides how many workers there are.
pub trait Sizing: Debug {
    /// How many there are at first.
    fn at_start(&self) -> usize;

    /// The router reports that this number of requests waits, and that no worker is idle. Returns when to decide;
    /// `None` changes nothing.
    fn on_workers_wanted(&mut self, waiting: usize, now: Duration) -> Option<Duration>;

    /// Decides.
    fn decide(&mut self, pool: &PoolView<'_>, now: Duration) -> Order;
}

/// The decision of a [`Sizing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How many workers to start.
    pub start: usize,
    /// How many workers to retire: idle ones first, the others after their request.
    pub retire: usize,
    /// When to decide again, unless the router reports earlier.
    pub decide_again_in: Duration,
}

/// The workers, as a [`Sizing`] sees them.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'a> {
    /// How many processors the machine has.
    pub cores: usize,
    /// The workers that serve, without those that leave.
    pub workers: &'a [WorkerView],
    /// How many workers are being started.
    pub starting: usize,
    /// How many workers leave after their request.
    pub leaving: usize,
    /// How many requests all workers have finished since the start, those included that are gone.
    pub finished: u64,
    /// How long the processors have been idle since the start, added up.
    pub idle_processors: Duration,
}

/// A worker, as a [`Sizing`] sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerView {
    /// Its number. No other worker of the simulation has had it.
    pub number: u64,
    /// When its request began; `None` if it is idle.
    pub began: Option<Duration>,
    /// Whether its request waits for others than the processors.
    pub is_waiting: bool,
    /// How many requests it has finished.
    pub requests: u64,
    /// How long it was busy with requests until now.
    pub busy: Duration,
    /// How long it has used a processor.
    pub ran: Duration,
    /// How long it has waited for a processor.
    pub delayed: Duration,
}

/// Decides which requests wait for a worker, for how long, and which are refused.
pub trait Admission: Debug {
    /// A request has come, or its hold is over. `held` is the time since it came.
    fn admit(&mut self, queue: QueueView, held: Duration, now: Duration) -> Verdict;

    /// How long a request may wait now that was queued with this limit. A policy may shorten or restore it.
    fn longest_wait(&self, limit: Duration) -> Duration {
        limit
    }

    /// A worker has finished a request.
    fn on_finished(&mut self, _now: Duration) {}

    /// A request was refused, or has waited for too long: it was answered 503.
    fn on_rejected(&mut self, _now: Duration) {}

    /// The client of a request that waited has left.
    fn on_left(&mut self, _now: Duration) {}

    /// A new generation has taken over, whose policy has seen nothing yet. The requests that wait are its own.
    fn on_deploy(&mut self, _now: Duration) {}

    /// Called about every [`MEASURE_INTERVAL`], and before each [`admit`](Admission::admit).
    fn measure(&mut self, _queue: QueueView, _now: Duration) {}
}

/// The queue, as an [`Admission`] sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// How many requests wait for a worker. Held requests do not count.
    pub waiting: usize,
    /// How many requests are held.
    pub held: usize,
    /// How many workers serve.
    pub workers: usize,
    /// How many of them are idle.
    pub idle: usize,
}

/// The decision of an [`Admission`] about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits for a worker for up to this time, and is answered 503 afterwards.
    Queue {
        /// The longest wait.
        limit: Duration,
    },
    /// It waits outside of the queue; the policy decides about it again after this time.
    Hold {
        /// The time until then.
        pause: Duration,
    },
    /// It is answered 503 after this time.
    Refuse {
        /// Zero is at once. A pause costs no processor time, and slows down a client that returns at once.
        pause: Duration,
    },
}

/// A constant number of workers.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub usize);

/// A queue that refuses no request before it has waited for this time.
#[derive(Clone, Copy, Debug)]
pub struct WaitUpTo(pub Duration);

/// The time between two calls of [`Admission::measure`].
pub const MEASURE_INTERVAL: Duration = Duration::from_millis(250);

// === impl Fixed ===

impl Sizing for Fixed {
    fn at_start(&self) -> usize {
        self.0
    }

    fn on_workers_wanted(&mut self, _waiting: usize, _now: Duration) -> Option<Duration> {
        None
    }

    fn decide(&mut self, _pool: &PoolView<'_>, _now: Duration) -> Order {
        Order { start: 0, retire: 0, decide_again_in: Duration::from_secs(3600) }
    }
}

// === impl WaitUpTo ===

impl Admission for WaitUpTo {
    fn admit(&mut self, _queue: QueueView, _held: Duration, _now: Duration) -> Verdict {
        Verdict::Queue { limit: self.0 }
    }
}
