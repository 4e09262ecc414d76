//! A timeout for each single wait of a body. The time runs only while a poll of the body waits, and not while the body is
//! not polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The timeout of one wait at a time.
pub struct WaitTimeout {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

// === impl WaitTimeout ===

impl WaitTimeout {
    /// A timeout that does not run yet.
    pub fn new(limit: Duration) -> WaitTimeout {
        WaitTimeout { limit, timer: None, is_running: false }
    }

    /// The limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Ends the wait: data has arrived.
    pub fn stop(&mut self) {
        self.is_running = false;
    }

    /// Starts or continues the wait: no data has arrived. Ready when the wait has reached the limit.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<()> {
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
