//! The submission of a request: the wait for a slot, then its head and the beginning of its body.

use super::generation_port::{GenerationPort, SWEEP};
use super::running::{Outcome, Remainder, RunningRequest, Wait};
use crate::backends::buffering::spool::Spool;
use crate::backends::php::generation::SharedGeneration;
use crate::request::record::log_context::LogContext;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::account::monotonic;
use howdah_channel::request::RequestHeadWriter;
use howdah_channel::{Exchange, Refused};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// A request that waits for a slot. Dropping it before the wait has ended cancels the request.
struct QueuedRequest<'g>(Cell<Option<&'g SharedGeneration>>);

/// The pause before another attempt to get a slot that should be free.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The largest buffer for heads that is kept, in bytes written.
const KEPT_HEAD_BYTES: usize = 8 * 1024;

/// Waits for a slot and submits the request. The head is written only then; `body` is the beginning of the body.
///
/// `wait` covers the slot and the queue together: a client waits once.
///
/// # Errors
/// 431 for a head that does not fit into a slot; 503 when no worker takes the request in time; 502 for a broken channel.
pub async fn submit(
    port: &Rc<GenerationPort>,
    write_head: impl Fn(&mut RequestHeadWriter),
    body: &[u8],
    remainder: Remainder,
    spool_folder: Option<&Path>,
    wait: Wait,
) -> Result<Rc<RunningRequest>, Failure> {
    let queued = QueuedRequest(Cell::new(Some(&*port.generation)));
    let complete = matches!(remainder, Remainder::None);
    let disk = match &remainder {
        Remainder::File(file, _) => Some(file.notice()),
        Remainder::None | Remainder::Memory(_) => None,
    };
    let exchange = loop {
        let permit = match port.generation.slots.try_acquire() {
            Some(permit) => permit,
            None => match in_time(port, wait, port.generation.slots.acquire()).await {
                Some(permit) => permit,
                None => return Err(queued.reject().await),
            },
        };
        match write_and_submit(port, &write_head, body, complete) {
            Ok(exchange) => {
                permit.used();
                break exchange;
            }
            Err(Refused::HeadTooLarge) => return Err(Failure::HeadTooLarge),
            // A permit stands for a free slot, unless a worker spoiled the queue: the sweep notices that, or it passes.
            Err(Refused::NoSlot) => {
                drop(permit);
                if in_time(port, wait, Box::pin(sleep(ASK_AGAIN))).await.is_none() {
                    return Err(queued.reject().await);
                }
            }
            Err(Refused::Broken(violation)) => {
                port.generation.report_violation(violation);
                return Err(Failure::BadGateway);
            }
        }
    };
    queued.wait_ended();
    let taken = exchange.body_taken() as usize;
    let remainder = match remainder {
        Remainder::None if taken < body.len() => Remainder::Memory(Bytes::copy_from_slice(&body[taken..])),
        other => other,
    };
    let (slot, sequence) = (exchange.slot(), exchange.sequence());
    let running = Rc::new(RunningRequest {
        exchange: RefCell::new(Some(exchange)),
        remainder: RefCell::new(remainder),
        spool: RefCell::new(Spool::new(port.spool_limits, spool_folder)),
        held_back: Cell::new(None),
        begun: Cell::new(false),
        outcome: Cell::new(Outcome::UnderWay),
        waker: RefCell::default(),
        wait,
        is_timed: Cell::new(false),
        running_since: Cell::new(None),
        reported_overdue: Cell::new(None),
        worker: Cell::new(None),
        context: LogContext::current(),
        submitted: monotonic(),
        waited: wait.admitted.elapsed(),
    });
    port.active.insert(slot, sequence, &running);
    port.wakes.after_turn();
    if port.deadline(wait) < wait.admitted + SWEEP {
        port.cancel_at_deadline(slot, &running);
    }
    if let Some(disk) = disk {
        port.cancel_for_room(slot, &running, disk);
    }
    Ok(running)
}

/// Waits for something, up to the request's deadline.
fn in_time<T>(
    port: &GenerationPort,
    wait: Wait,
    something: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    port.generation.in_time((wait.admitted, wait.longest), something)
}

fn write_and_submit(
    port: &GenerationPort,
    write_head: impl Fn(&mut RequestHeadWriter),
    body: &[u8],
    complete: bool,
) -> Result<Exchange, Refused> {
    let mut writer = port.head.borrow_mut();
    write_head(&mut writer);
    let head = writer.finish();
    let submitted = port.generation.channel.submit_without_wake(port.thread, head, body, complete);
    if head.len() > KEPT_HEAD_BYTES {
        *writer = RequestHeadWriter::default();
    }
    submitted
}

// === impl QueuedRequest ===

impl QueuedRequest<'_> {
    /// The request is submitted, or rejected.
    fn wait_ended(&self) {
        self.0.set(None);
    }

    /// Rejects the request, whose time is over. It no longer waits for a slot: others may take its turn meanwhile.
    async fn reject(&self) -> Failure {
        match self.0.take() {
            Some(generation) => generation.reject_late().await,
            None => Failure::Unavailable { retry_after: 1 },
        }
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if let Some(generation) = self.0.get() {
            generation.cancel();
        }
    }
}
