//! The pace of rejections, as all threads share it.

use super::refusals::RefusalPace;
use crate::resources::processors::processors;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The [`RefusalPace`] of a generation.
#[derive(Debug)]
pub struct SharedRefusals(Mutex<RefusalPace>);

/// A request that waits for its rejection, until it is dropped.
#[derive(Debug)]
pub struct Delayed<'r>(&'r SharedRefusals);

// === impl SharedRefusals ===

impl SharedRefusals {
    /// See [`RefusalPace::reserve`].
    pub fn reserve(&self, now: Instant) -> Instant {
        self.lock().reserve(now)
    }

    /// See [`RefusalPace::begin_delay`].
    pub fn delay(&self) -> Option<Delayed<'_>> {
        self.lock().begin_delay().then(|| Delayed(self))
    }

    fn lock(&self) -> MutexGuard<'_, RefusalPace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SharedRefusals {
    fn default() -> Self {
        let processors = u32::try_from(processors()).unwrap_or(u32::MAX);
        SharedRefusals(Mutex::new(RefusalPace::new(processors)))
    }
}

// === impl Delayed ===

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.0.lock().end_delay();
    }
}
