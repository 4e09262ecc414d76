//! The requests that kill workers, as all threads share them. While there are none, the lock is not taken.

use super::killers::{Killers, RequestKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The [`Killers`] of a generation.
#[derive(Debug, Default)]
pub struct SharedKillers {
    killers: Mutex<Killers>,
    /// Whether there are any.
    exist: AtomicBool,
}

// === impl SharedKillers ===

impl SharedKillers {
    /// See [`Killers::admit`].
    pub fn admit(&self, kind: RequestKind, now: Instant) -> bool {
        !self.exist() || self.lock().admit(kind, now)
    }

    /// See [`Killers::would_admit`].
    pub fn would_admit(&self, kind: RequestKind, now: Instant) -> bool {
        !self.exist() || self.lock().would_admit(kind, now)
    }

    /// See [`Killers::is_suspect`].
    pub fn is_suspect(&self, kind: RequestKind) -> bool {
        self.exist() && self.lock().is_suspect(kind)
    }

    /// See [`Killers::killed`].
    pub fn killed(&self, kind: RequestKind, was_answered: bool, now: Instant) {
        self.lock().killed(kind, was_answered, now);
        self.exist.store(true, Ordering::Relaxed);
    }

    /// See [`Killers::survived`].
    pub fn survived(&self, kind: RequestKind) {
        if self.exist() {
            self.lock().survived(kind);
        }
    }

    /// See [`Killers::forget`].
    pub fn forget(&self, now: Instant) {
        if self.exist() {
            let mut killers = self.lock();
            killers.forget(now);
            self.exist.store(!killers.is_empty(), Ordering::Relaxed);
        }
    }

    fn exist(&self) -> bool {
        self.exist.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Killers> {
        self.killers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
