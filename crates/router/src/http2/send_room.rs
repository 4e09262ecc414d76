//! How many bytes of a connection's responses wait in h2.
//!
//! h2 has a buffer for each stream. A client that reads nothing would fill all of them: streams wait here instead, before
//! they take anything of their bodies, while the socket takes nothing, or while [`MOST_BYTES`] were not written.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// The room of one connection.
#[derive(Debug, Default)]
pub struct SendRoom {
    /// How many bytes were passed on since the last time that all were written.
    unwritten: Cell<usize>,
    /// Whether the socket takes nothing.
    is_blocked: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// One write has some of them: more would be no faster.
const MOST_BYTES: usize = 128 * 1024;

// === impl SendRoom ===

impl SendRoom {
    /// Ready when a stream may pass bytes on. Streams get their turns in the order in which they began to wait.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_open() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Bytes were passed on to h2.
    pub fn take(&self, bytes: usize) {
        self.unwritten.set(self.unwritten.get() + bytes);
    }

    /// The socket has taken bytes, or did not.
    pub fn wrote(&self, written: bool) {
        self.is_blocked.set(!written);
    }

    /// Everything was written.
    pub fn flushed(&self) {
        self.unwritten.set(0);
        self.is_blocked.set(false);
        std::mem::take(&mut *self.waiting.borrow_mut()).into_iter().for_each(Waker::wake);
    }

    /// Whether a stream may pass bytes on.
    pub fn is_open(&self) -> bool {
        !self.is_blocked.get() && self.unwritten.get() < MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn new_count_waker() -> (Waker, impl Fn() -> usize) {
        let woken = Arc::new(Woken::default());
        (Waker::from(Arc::clone(&woken)), move || woken.0.load(Ordering::Relaxed))
    }

    #[test]
    fn a_stream_waits_until_the_bytes_of_others_are_written() {
        let room = SendRoom::default();
        let (waker, woken) = new_count_waker();
        let context = Context::from_waker(&waker);
        assert!(room.poll(&context).is_ready());
        room.take(MOST_BYTES);
        assert!(room.poll(&context).is_pending() && room.poll(&context).is_pending());
        room.wrote(false);
        room.wrote(true);
        assert!(room.poll(&context).is_pending() && woken() == 0);
        room.flushed();
        assert!(woken() == 1 && room.poll(&context).is_ready());
    }

    #[test]
    fn a_socket_that_takes_nothing_leaves_no_room() {
        let room = SendRoom::default();
        room.wrote(false);
        let (waker, woken) = new_count_waker();
        assert!(room.poll(&Context::from_waker(&waker)).is_pending());
        room.flushed();
        assert!(woken() == 1 && room.poll(&Context::from_waker(&waker)).is_ready());
    }
}
