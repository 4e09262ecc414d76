//! The measurements and the bounds of a decision, and the decision.

use crate::policy::demand::Demand;
use std::time::Duration;

/// The bounds of every decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// How many processors the application may use: 0.5 is half of one.
    pub cores: f64,
    /// The largest number of workers.
    pub max: usize,
    /// How much memory the workers may use together, in bytes; `None` is no bound.
    pub memory: Option<u64>,
}

/// The measurements of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The workers and the requests that wait.
    pub demand: Demand,
    /// How many requests have been finished since the application started.
    pub finished: u64,
    /// How many of the busy workers have run their request for a while, and wait for others than the processors.
    pub blocked: f64,
    /// How many of the workers will still use more memory than now.
    pub young: usize,
    /// How many other workers were retired, and still use their memory.
    pub leaving: usize,
    /// The usage since the last measurement; `None` if that was a moment ago.
    pub usage: Option<Usage>,
    /// The memory; `None` if it could not be measured.
    pub memory: Option<Memory>,
}

/// The usage of all workers together within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// That time, in seconds.
    pub within: f64,
    /// How many requests they finished.
    pub requests: f64,
    /// How long they were busy with requests, in seconds.
    pub wall: f64,
    /// How long processors were busy with them, in seconds.
    pub cpu: f64,
    /// How long they waited for a processor, in seconds.
    pub delayed: f64,
    /// How long the machine's processors were idle, in seconds, divided by their number.
    pub idle: f64,
}

/// How much memory there is for workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How much may still be used, in bytes; negative if too much is in use already.
    pub room: i64,
    /// The same without what new workers of other applications will use.
    pub room_for_more: i64,
    /// How much one worker uses, in bytes, after it has run for a while.
    pub worker: u64,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How many workers there should be. Never fewer than there are.
    pub wanted: usize,
    /// How many workers to retire: idle ones first, the others after their request.
    pub surplus: usize,
    /// When to decide again, unless requests wait earlier.
    pub decide_again_in: Duration,
    /// When to decide again, at the earliest, because requests wait.
    pub pause: Duration,
    /// Set if the memory keeps the number at this bound.
    pub lacks_memory: Option<usize>,
}

// === impl Bounds ===

impl Bounds {
    /// How many workers there are when nothing is known, and when there are no requests: two, so that one slow request
    /// does not block all others. No more, because a machine may have many applications, and a fork is cheap.
    pub fn least(&self) -> usize {
        2.min(self.max)
    }

    /// The most workers for pages that only compute: with a few more than processors, none is without work while a
    /// worker changes from one request to the next.
    pub fn most_computing(&self) -> usize {
        (self.cores.ceil() as usize + 2).min(self.max)
    }
}
