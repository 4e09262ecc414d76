//! A resource that few requests can use at a time: a lock, or a database with few connections.

use std::collections::VecDeque;

/// The resource, and the workers that wait for it in their order.
#[derive(Debug)]
pub struct Resource {
    free: usize,
    waiting: VecDeque<usize>,
}

// === impl Resource ===

impl Resource {
    /// This number of requests can use it at a time.
    pub fn new(capacity: usize) -> Resource {
        Resource { free: capacity, waiting: VecDeque::new() }
    }

    /// The worker uses the resource now, or waits for it. Returns whether it uses it.
    pub fn acquire(&mut self, worker: usize) -> bool {
        let is_free = self.free > 0;
        match is_free {
            true => self.free -= 1,
            false => self.waiting.push_back(worker),
        }
        is_free
    }

    /// A worker needs it no more. Returns the next worker, which uses it now.
    pub fn release(&mut self) -> Option<usize> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.free = self.free.saturating_add(1);
        }
        next
    }
}
