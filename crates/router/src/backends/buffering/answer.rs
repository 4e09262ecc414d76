//! An answer on its way from the task that reads it to the client.

use crate::backends::buffering::spool::Spool;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The bytes that have come, and the state of the rest.
pub struct Answer {
    spool: RefCell<Spool>,
    state: Cell<AnswerState>,
    /// The client waits for more.
    reader: RefCell<Option<Waker>>,
    /// The spool has room again, or the client has left.
    changed: Notify,
    has_client: Cell<bool>,
}

/// The client's end. Dropping it leaves the rest of the answer to the task.
pub struct AnswerBody {
    answer: Rc<Answer>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    Incomplete,
    Complete,
    Lost,
}

// === impl Answer ===

impl Answer {
    /// An answer of which nothing has come.
    pub fn new(spool: Spool) -> Answer {
        Answer {
            spool: RefCell::new(spool),
            state: Cell::new(AnswerState::Incomplete),
            reader: RefCell::default(),
            changed: Notify::new(),
            has_client: Cell::new(true),
        }
    }

    /// How many bytes the client has not taken.
    pub fn len(&self) -> u64 {
        self.spool.borrow().len()
    }

    /// Whether more bytes should be pushed.
    pub fn has_room(&self) -> bool {
        !self.has_client.get() || self.spool.borrow().has_room()
    }

    /// Whether the client waits for it.
    pub fn has_client(&self) -> bool {
        self.has_client.get()
    }

    /// Waits until the spool has room again, or the client leaves.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Appends bytes of the body.
    ///
    /// # Errors
    /// When the file of the spool fails.
    pub fn push(&self, bytes: &[u8]) -> io::Result<()> {
        if self.has_client.get() {
            self.spool.borrow_mut().push(bytes)?;
            self.wake();
        }
        Ok(())
    }

    /// All bytes have come.
    pub fn complete(&self) {
        self.state.set(AnswerState::Complete);
        self.wake();
    }

    /// The rest is lost.
    pub fn lose(&self) {
        if self.state.get() == AnswerState::Incomplete {
            self.state.set(AnswerState::Lost);
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

// === impl AnswerBody ===

impl AnswerBody {
    /// The client's end of an answer.
    pub fn new(answer: &Rc<Answer>) -> AnswerBody {
        AnswerBody { answer: Rc::clone(answer) }
    }

    /// All bytes, if they are in memory and no more come.
    pub fn take_whole(&self) -> Option<Bytes> {
        let mut spool = self.answer.spool.borrow_mut();
        let length = spool.len();
        let is_whole = self.answer.state.get() == AnswerState::Complete && spool.is_in_memory();
        let bytes = is_whole.then(|| spool.take()).transpose().ok().flatten()?;
        debug_assert_eq!(bytes.len() as u64, length, "a spool in memory gives all of its bytes");
        Some(bytes)
    }

    /// The next bytes.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let taken = self.answer.spool.borrow_mut().take();
        match taken {
            Ok(bytes) if bytes.is_empty() => {}
            result => {
                self.answer.changed.notify_one();
                return Poll::Ready(Some(result));
            }
        }
        match self.answer.state.get() {
            AnswerState::Complete => Poll::Ready(None),
            AnswerState::Lost => Poll::Ready(Some(Err(io::Error::other("the rest of the response was lost")))),
            AnswerState::Incomplete => {
                *self.answer.reader.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.answer.has_client.set(false);
        self.answer.changed.notify_one();
    }
}
