//! The client's side of an exchange: it waits for the beginning of an answer, which the exchange's task sends.

use crate::backends::buffering::answer::{Answer, AnswerBody};
use crate::report::inject;
use std::rc::Rc;
use tokio::sync::oneshot;

/// The beginning of an answer.
pub struct StartedAnswer<H> {
    /// The status and the headers, which are valid.
    pub head: H,
    /// The length of the whole body, if it is known.
    pub length: Option<u64>,
    /// Its body.
    pub body: AnswerBody,
}

/// The message of the task to the client's end.
type Beginning<H, E> = Result<StartedAnswer<H>, E>;

/// The task's end, with heads `H` and reasons `E` for which there is no answer.
pub struct Start<H, E> {
    /// `None` after the beginning of the answer.
    sender: Option<oneshot::Sender<Beginning<H, E>>>,
    answer: Rc<Answer>,
}

// === impl Start ===

impl<H, E> Start<H, E> {
    /// The start of this answer, and the client's end.
    pub fn of(answer: Answer) -> (Start<H, E>, oneshot::Receiver<Beginning<H, E>>) {
        let (sender, started) = oneshot::channel();
        (Start { sender: Some(sender), answer: Rc::new(answer) }, started)
    }

    /// The answer.
    pub fn answer(&self) -> &Rc<Answer> {
        &self.answer
    }

    /// Whether the client waits for the answer, or reads it.
    pub fn has_client(&self) -> bool {
        match &self.sender {
            Some(sender) => !sender.is_closed(),
            None => self.answer.has_client(),
        }
    }

    /// Whether the client has the beginning of the answer.
    pub fn has_begun(&self) -> bool {
        self.sender.is_none()
    }

    /// Waits until the client leaves, before the answer has begun.
    pub async fn closed(&mut self) {
        match &mut self.sender {
            Some(sender) => sender.closed().await,
            None => std::future::pending().await,
        }
    }

    /// The answer begins.
    pub fn begin(&mut self, head: H, length: Option<u64>) {
        if let Some(sender) = self.sender.take() {
            let body = AnswerBody::new(&self.answer);
            // If the client has left, the body is dropped, and with it the rest.
            let _ = sender.send(Ok(StartedAnswer { head, length, body }));
        }
        inject("exchange", "/begun");
    }

    /// There is no answer, or no more of it.
    pub fn fail(&mut self, reason: E) {
        self.answer.lose();
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(Err(reason));
        }
    }
}

impl<H, E> Drop for Start<H, E> {
    /// A task that has panicked sends no more of the answer.
    fn drop(&mut self) {
        self.answer.lose();
    }
}
