//! A pause between messages that could come with every request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Lets one message of all threads pass in each pause.
#[derive(Debug)]
pub struct Throttle {
    pause_ms: u64,
    started: Instant,
    /// When the last message passed, in milliseconds since `started`, plus one pause; zero before the first.
    passed_ms: AtomicU64,
}

// === impl Throttle ===

impl Throttle {
    /// A throttle with this pause between two messages.
    pub fn new(pause: Duration) -> Throttle {
        Throttle { pause_ms: pause.as_millis() as u64, started: Instant::now(), passed_ms: 0.into() }
    }

    /// Whether a message may pass now.
    pub fn is_due(&self) -> bool {
        // The sum makes the first message due.
        let now = self.started.elapsed().as_millis() as u64 + self.pause_ms;
        let last = self.passed_ms.load(Ordering::Relaxed);
        now >= last + self.pause_ms
            && self.passed_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
