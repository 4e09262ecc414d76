//! How long somebody may keep a stream waiting. The time runs only while the stream waits, not while nobody asks it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A limit for each single wait.
pub struct Patience {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

/// How long an upstream may neither take nor send anything.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

// === impl Patience ===

impl Patience {
    /// With no wait under way.
    pub fn new(limit: Duration) -> Patience {
        Patience { limit, timer: None, is_running: false }
    }

    /// There is something: the wait is over.
    pub fn rest(&mut self) {
        self.is_running = false;
    }

    /// There is nothing: ready when that has lasted too long.
    pub fn poll_is_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.is_running, true) {
            timer.as_mut().reset(Instant::now() + limit);
        }
        ready!(timer.as_mut().poll(context));
        self.is_running = false;
        Poll::Ready(())
    }
}
