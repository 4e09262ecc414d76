//! The queue's policy, as all threads share it. While no request waits, the lock is not taken.

use super::queue::{Arrival, News, Queue, TooBusy};
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
    /// Whether the queue has a state: requests have been waiting, or are refused.
    is_standing: AtomicBool,
}

// === impl SharedQueue ===

impl SharedQueue {
    /// A queue in which no request waits longer than this.
    pub fn new(timeout: Duration) -> SharedQueue {
        SharedQueue { queue: Mutex::new(Queue::new(timeout)), timeout, is_standing: false.into() }
    }

    /// See [`Queue::arrive`].
    pub fn arrive(&self, arrival: Arrival) -> Result<Duration, TooBusy> {
        if self.is_empty(arrival.waiting) { Ok(self.timeout) } else { self.lock().arrive(arrival) }
    }

    /// See [`Queue::foresee`].
    pub fn foresee(&self, arrival: Arrival) -> Result<Duration, TooBusy> {
        if self.is_empty(arrival.waiting) { Ok(self.timeout) } else { self.lock().foresee(arrival) }
    }

    /// See [`Queue::look`].
    pub fn look(&self, waiting: u64, now: Instant) -> Option<News> {
        if self.is_empty(waiting) {
            return None;
        }
        let mut queue = self.lock();
        let news = queue.look(waiting, now);
        self.is_standing.store(queue.is_standing(), Ordering::Relaxed);
        news
    }

    /// See [`Queue::refused`].
    pub fn refused(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.lock().refused();
        }
    }

    /// See [`Queue::finished`].
    pub fn finished(&self, count: usize) {
        if count > 0 && self.is_standing.load(Ordering::Relaxed) {
            self.lock().finished(count as u64);
        }
    }

    /// See [`Queue::left`].
    pub fn left(&self) {
        if self.is_standing.load(Ordering::Relaxed) {
            self.lock().left();
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
