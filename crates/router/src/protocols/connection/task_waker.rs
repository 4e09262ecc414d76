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

/// A waker for tests.
#[cfg(test)]
pub mod counting {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// How often a task was woken.
    #[derive(Default)]
    pub struct Woken(AtomicUsize);

    impl Woken {
        /// The number, which starts at zero again.
        pub fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A waker, and how often it was used.
    pub fn waker() -> (Arc<Woken>, Waker) {
        let woken = Arc::new(Woken::default());
        (Arc::clone(&woken), Waker::from(woken))
    }
}
