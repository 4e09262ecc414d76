//! The queue's policy, as all threads share it. While no request waits, the lock is not taken.

use super::queue::{Arrival, OverloadEvent, Queue, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The [`Queue`] of a generation.
#[derive(Debug)]
pub struct SharedQueue {
    queue: Mutex<Queue>,
    /// The longest wait.
    timeout: Duration,
    /// Whether the queue has a state: requests have been waiting, or are rejected.
    is_standing: AtomicBool,
}

// === impl SharedQueue ===

impl SharedQueue {
    /// A queue in which no request waits longer than this.
    pub fn new(timeout: Duration) -> SharedQueue {
        SharedQueue { queue: Mutex::new(Queue::new(timeout)), timeout, is_standing: false.into() }
    }

    /// The longest wait of any request.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// See [`Queue::enqueue`].
    pub fn enqueue(&self, arrival: Arrival) -> Verdict {
        if self.is_empty(arrival.waiting) { Verdict::Admit(self.timeout) } else { self.lock().enqueue(arrival) }
    }

    /// See [`Queue::forecast`].
    pub fn forecast(&self, arrival: Arrival) -> Verdict {
        if self.is_empty(arrival.waiting) { Verdict::Admit(self.timeout) } else { self.lock().forecast(arrival) }
    }

    /// See [`Queue::measure`].
    pub fn measure(&self, waiting: u64, now: Instant) -> Option<OverloadEvent> {
        if self.is_empty(waiting) {
            return None;
        }
        let mut queue = self.lock();
        let event = queue.measure(waiting, now);
        self.is_standing.store(queue.is_standing(), Ordering::Relaxed);
        event
    }

    /// See [`Queue::rejected`].
    pub fn rejected(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.lock().rejected();
        }
    }

    /// See [`Queue::finished`].
    pub fn finished(&self, count: usize) {
        if count > 0 && self.is_standing.load(Ordering::Relaxed) {
            self.lock().finished(count as u64);
        }
    }

    /// See [`Queue::cancel`].
    pub fn cancel(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.lock().cancel();
        }
    }

    /// See [`Queue::longest_wait`].
    pub fn longest_wait(&self, allowed: Duration) -> Duration {
        match self.is_standing.load(Ordering::Relaxed) {
            true => self.lock().longest_wait(allowed),
            false => allowed,
        }
    }

    fn is_empty(&self, waiting: u64) -> bool {
        waiting == 0 && !self.is_standing.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
