//! The requests of a connection that answers many at the same time (HTTP/2, HTTP/3), also as the thread's load has them.

use crate::net::load::Load;
use crate::protocols::connection::task_waker::TaskWaker;
use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// How many requests of a connection are being answered.
#[derive(Debug)]
pub struct OpenRequests {
    load: Arc<Load>,
    count: Cell<usize>,
    /// Since when there are none.
    none_since: Cell<Instant>,
    /// Whether a request has come.
    had_some: Cell<bool>,
    waker: TaskWaker,
}

// === impl OpenRequests ===

impl OpenRequests {
    /// The requests of a new connection: none.
    pub fn new(load: Arc<Load>) -> OpenRequests {
        OpenRequests {
            load,
            count: Cell::new(0),
            none_since: Cell::new(Instant::now()),
            had_some: Cell::new(false),
            waker: TaskWaker::default(),
        }
    }

    /// A request begins. Each one ends once.
    pub fn began(&self) {
        match self.count.replace(self.count.get() + 1) {
            0 => self.load.request_began(),
            _ => self.load.request_joined(),
        }
        self.had_some.set(true);
    }

    /// A request has ended.
    pub fn ended(&self) {
        self.count.set(self.count.get() - 1);
        if self.is_empty() {
            self.load.request_ended();
            self.none_since.set(Instant::now());
            self.waker.wake();
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count.get() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Since when there are none, or were none.
    pub fn none_since(&self) -> Instant {
        self.none_since.get()
    }

    /// Whether a request has come.
    pub fn had_some(&self) -> bool {
        self.had_some.get()
    }

    /// Ready when there are none. Wakes this task then.
    pub fn poll_empty(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.keep(context);
        if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The waker of the connection's task.
    pub fn waker(&self) -> &TaskWaker {
        &self.waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_protocol::messages::router::RouterLoad;
    use std::task::Waker;

    #[test]
    fn a_connection_counts_as_active_while_it_has_requests() {
        let load = Arc::new(Load::default());
        let requests = OpenRequests::new(Arc::clone(&load));
        let counted = || {
            let mut report = RouterLoad::default();
            load.add_to(&mut report);
            (report.connections_active, report.requests_total)
        };
        let context = Context::from_waker(Waker::noop());
        assert!(requests.poll_empty(&context).is_ready() && !requests.had_some());
        requests.began();
        requests.began();
        assert_eq!(counted(), (1, 2));
        requests.ended();
        assert!(requests.poll_empty(&context).is_pending());
        requests.ended();
        assert_eq!(counted(), (0, 2));
        assert!(requests.poll_empty(&context).is_ready() && requests.had_some());
    }
}
