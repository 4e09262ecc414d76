//! The waker of a connection's task: the connection's clock wakes it when something has changed that the task must notice.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// The waker of a task, if it waits.
#[derive(Debug, Default)]
pub struct TaskWaker(RefCell<Option<Waker>>);

// === impl TaskWaker ===

impl TaskWaker {
    /// Keeps the waker of this task.
    pub fn keep(&self, context: &Context<'_>) {
        match &mut *self.0.borrow_mut() {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    /// Wakes the task once.
    pub fn wake(&self) {
        if let Some(waker) = self.0.borrow_mut().take() {
            waker.wake();
        }
    }
}
