//! The logs of howdah, and the number of lines of each that this process has lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// A log of howdah.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The access log.
    Access,
    /// howdah's own log.
    Error,
}

/// How many lines this process has lost, for each log, and has not counted elsewhere yet.
static LOST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

// === impl Log ===

impl Log {
    /// Its id in messages and metrics.
    pub fn id(self) -> &'static str {
        match self {
            Log::Access => "access",
            Log::Error => "error",
        }
    }

    /// Its name for a person.
    pub fn name(self) -> &'static str {
        match self {
            Log::Access => "the access log",
            Log::Error => "howdah's log",
        }
    }

    /// How many of its lines this process has lost since the last call.
    pub fn take_lost(self) -> u64 {
        LOST[self as usize].swap(0, Ordering::Relaxed)
    }

    pub(crate) fn count_lost(self, lines: u64) {
        LOST[self as usize].fetch_add(lines, Ordering::Relaxed);
    }
}
