//! The response of a request, as it arrives in the spool.

use super::generation_port::GenerationPort;
use super::running::{Outcome, RunningRequest};
use crate::backends::buffering::spool;
use crate::protocols::connection::heads::interim_limit::MAX_RESPONSES;
use crate::protocols::connection::heads::large_head::{LargeHead, NoRoom};
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::response;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The head of a response, and the part of its body that has arrived.
pub struct Started {
    /// As the worker wrote it; the head is valid.
    pub bytes: Bytes,
    /// Whether `bytes` is the whole response.
    pub complete: bool,
}

/// The most bytes of all interim responses to a request. Further ones are dropped, at less cost.
const MAX_INTERIM_BYTES: usize = 256 * 1024;

/// Waits for the head of the response. `inform` gets the heads of interim responses before it.
///
/// # Errors
/// The failure that is answered in its place.
pub async fn head(
    port: &GenerationPort,
    running: &Rc<RunningRequest>,
    inform: impl Fn(&response::Head<'_>),
) -> Result<Started, Failure> {
    let mut arrived = Vec::new();
    let (mut interim, mut interim_bytes) = (0_usize, 0_usize);
    let mut memory = None;
    poll_fn(|context| {
        let bytes = port.take(running).map_err(|_| Failure::Internal)?;
        if arrived.is_empty() && !bytes.is_empty() {
            arrived = bytes.into();
        } else {
            arrived.extend_from_slice(&bytes);
        }
        if running.is_overdue() {
            arrived.clear();
        }
        let mut passed = 0;
        let has_head = loop {
            match response::parse(&arrived[passed..]) {
                Ok(Some((head, length))) if head.is_interim => {
                    (interim, interim_bytes) = (interim + 1, length.saturating_add(interim_bytes));
                    if interim <= MAX_RESPONSES && interim_bytes <= MAX_INTERIM_BYTES {
                        inform(&head);
                    }
                    passed += length;
                }
                parsed => break parsed.map(|head| head.is_some()),
            }
        };
        // Once for all of them: a script can write thousands at a time.
        arrived.drain(..passed);
        // A worker may send a head without an end.
        let held = match &mut memory {
            None => LargeHead::hold(arrived.len()).map(|new| memory = new),
            Some(memory) => LargeHead::grow_to(memory, arrived.len()),
        };
        held.map_err(|NoRoom| Failure::BadGateway)?;
        let more = running.spool.borrow().len() > 0;
        match (running.outcome.get(), has_head) {
            // Nothing has been sent yet: an error is better than a beginning without an end.
            (Outcome::Failed(Failure::WorkerDied { .. }), _) if !arrived.is_empty() => {
                Poll::Ready(Err(Failure::WorkerDied { had_begun: true }))
            }
            (Outcome::Failed(failure), _) => Poll::Ready(Err(failure)),
            (outcome, Ok(true)) => {
                running.begun.set(true);
                let complete = outcome == Outcome::Complete && !more;
                Poll::Ready(Ok(Started { bytes: spool::counted(std::mem::take(&mut arrived)), complete }))
            }
            (Outcome::Complete, Ok(false)) if !more => {
                tracing::warn!("a worker finished a request without a response: answered 502");
                Poll::Ready(Err(Failure::BadGateway))
            }
            (_, Err(violation)) => {
                tracing::warn!(%violation, "answered 502");
                Poll::Ready(Err(Failure::BadGateway))
            }
            _ => {
                if more {
                    context.waker().wake_by_ref();
                }
                *running.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

/// The next bytes of the body; `None` at its end.
///
/// # Errors
/// When the rest of the body is lost.
pub fn poll_body(
    port: &GenerationPort,
    running: &Rc<RunningRequest>,
    context: &mut Context<'_>,
) -> Poll<Option<io::Result<Bytes>>> {
    match port.take(running) {
        Ok(bytes) if bytes.is_empty() => {}
        other => return Poll::Ready(Some(other)),
    }
    match running.outcome.get() {
        Outcome::Complete => Poll::Ready(None),
        Outcome::Failed(_) => Poll::Ready(Some(Err(io::Error::other("the rest of the response was lost")))),
        Outcome::UnderWay => {
            *running.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        }
    }
}
