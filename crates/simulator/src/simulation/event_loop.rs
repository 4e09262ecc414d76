//! A thread with an event loop, of the router or of the load generator: it handles what has come in batches.

use crate::processors::{Processors, TaskId, Time};
use std::collections::VecDeque;

/// The thread.
#[derive(Debug)]
pub struct EventLoop<I> {
    /// Its task.
    pub task: TaskId,
    inbox: VecDeque<(I, Time)>,
    batch: Vec<I>,
    /// Work that its last batch has caused, in nanoseconds.
    debt: Time,
    is_busy: bool,
}

/// The most items that are handled before their results are visible.
const MAX_BATCH: usize = 16;

// === impl EventLoop ===

impl<I> EventLoop<I> {
    /// A thread without work.
    pub fn new(task: TaskId) -> EventLoop<I> {
        EventLoop { task, inbox: VecDeque::new(), batch: Vec::new(), debt: 0, is_busy: false }
    }

    /// Passes an item to the thread, which takes it this much work.
    pub fn push(&mut self, item: I, work: Time, processors: &mut Processors, now: Time) {
        self.inbox.push_back((item, work));
        if !self.is_busy {
            self.begin(processors, now);
        }
    }

    /// The thread has more work without an item of its own.
    pub fn add_debt(&mut self, work: Time) {
        self.debt += work;
    }

    /// The thread's task is done. Returns the items that have been handled.
    pub fn take_batch(&mut self) -> Vec<I> {
        std::mem::take(&mut self.batch)
    }

    /// Begins the next batch, after the items of the last one have had their effects.
    pub fn go_on(&mut self, mut handled: Vec<I>, processors: &mut Processors, now: Time) {
        handled.clear();
        self.batch = handled;
        self.is_busy = false;
        if !self.inbox.is_empty() {
            self.begin(processors, now);
        }
    }

    fn begin(&mut self, processors: &mut Processors, now: Time) {
        let mut work = std::mem::take(&mut self.debt);
        for (item, its_work) in self.inbox.drain(..self.inbox.len().min(MAX_BATCH)) {
            work += its_work;
            self.batch.push(item);
        }
        self.is_busy = true;
        processors.start(self.task, work.max(1), now);
    }
}
