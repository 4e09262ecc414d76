//! A request under way in PHP, on the side of the thread that submitted it: the bytes that move, and the outcome.

use super::turn_budget::TurnBudget;
use crate::backends::buffering::request_body::BodyFile;
use crate::backends::buffering::spool::Spool;
use crate::backends::php::admission::RequestKind;
use crate::request::record::log_context::LogContext;
use crate::request::record::numbers::PhpTimes;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::account::monotonic;
use howdah_channel::{Exchange, Progress, RESPONSE_RING_BYTES, Violation, WorkerId};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use tokio::time::Instant;

/// The part of a request's body that did not fit into its slot.
pub enum Remainder {
    /// The slot has the whole body.
    None,
    /// In memory, from this offset on.
    Memory(Bytes),
    /// In a file, from this position on.
    File(BodyFile, u64),
}

/// A request under way in PHP.
pub struct RunningRequest {
    /// `None` as soon as the response is complete or lost.
    pub(super) exchange: RefCell<Option<Exchange>>,
    pub(super) remainder: RefCell<Remainder>,
    pub(super) spool: RefCell<Spool>,
    /// Since when the spool has had no room: the response waits in its slot, and PHP with it.
    pub(super) held_back: Cell<Option<Instant>>,
    /// The client has its status.
    pub(super) begun: Cell<bool>,
    pub(super) outcome: Cell<Outcome>,
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) wait: Wait,
    /// A task cancels the request at its deadline.
    pub(super) is_timed: Cell<bool>,
    /// Since when a worker has been seen to run it.
    pub(super) running_since: Cell<Option<Instant>>,
    /// When it was last reported to the supervisor as overdue.
    pub(super) reported_overdue: Cell<Option<Instant>>,
    /// The worker that has answered it.
    pub(super) worker: Cell<Option<WorkerId>>,
    /// The client's request; `None` for a warm-up.
    pub(super) context: Option<Rc<LogContext>>,
    /// When it was submitted, by [`monotonic`].
    pub(super) submitted: Duration,
    /// How long it had waited by then.
    pub(super) waited: Duration,
}

/// How long a request may wait for a worker; after that it is answered 503.
#[derive(Clone, Copy)]
pub struct Wait {
    pub(super) admitted: Instant,
    pub(super) longest: Duration,
    /// The kind of request, of which others may have killed workers.
    pub(super) kind: RequestKind,
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    UnderWay,
    /// The response is complete; what is left of it is in the spool.
    Complete,
    Failed(Failure),
}

/// The state of a request after bytes were moved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    UnderWay,
    /// There is more to move, after others had their turn.
    MoreToMove,
    /// The response is complete.
    Complete,
    /// The worker has given the request up: there is no response, or a part of one.
    Abandoned,
}

/// A failure while bytes are moved.
pub(super) enum Trouble {
    Violation(Violation),
    Disk(io::Error),
}

/// The most characters of a request's path that the log shows.
const NAME_CHARS: usize = 300;

// === impl RunningRequest ===

impl RunningRequest {
    /// Moves bytes: a response as much as its ring has, a body as much as the budget allows.
    pub(super) fn advance(&self, budget: &TurnBudget) -> Result<Moved, Trouble> {
        let mut exchange = self.exchange.borrow_mut();
        let Some(exchange) = exchange.as_mut() else { return Ok(Moved::Complete) };
        // Progress first: once it is done, all bytes are there.
        let progress = exchange.progress().map_err(Trouble::Violation)?;
        let done = matches!(progress, Progress::Done(_));
        if let Progress::Done(worker) = progress {
            self.worker.set(Some(worker));
        }
        let mut spool = self.spool.borrow_mut();
        // The rest of a complete response fits into the slot's ring: taking it frees the slot.
        if done || spool.has_room() {
            self.held_back.set(None);
            budget.spend(receive(exchange, &mut spool)?);
        } else if exchange.response_waiting().map_err(Trouble::Violation)? > 0 {
            self.held_back.set(self.held_back.get().or_else(|| Some(Instant::now())));
        }
        if done {
            return Ok(if exchange.is_abandoned() { Moved::Abandoned } else { Moved::Complete });
        }
        let mut remainder = self.remainder.borrow_mut();
        feed(exchange, &mut remainder, budget)
    }

    /// Notes its times, which its worker has reported, and returns how long it occupied the worker; `None` for a warm-up, or if it
    /// reports nothing. It may report anything: no time is longer than possible.
    pub(super) fn note_times(&self) -> Option<Duration> {
        let (context, exchange) = (self.context.as_ref()?, self.exchange.borrow());
        let times = exchange.as_ref().and_then(Exchange::times)?;
        let began = times.began.clamp(self.submitted, monotonic().max(self.submitted));
        let ran = times.ran.min(monotonic().saturating_sub(began));
        let queue = self.waited + (began - self.submitted);
        if let Some(trace) = &context.trace
            && let Some((after, stack)) = exchange.as_ref().and_then(Exchange::slow_stack)
        {
            trace.set_slow_stack(after.min(ran), &String::from_utf8_lossy(&stack));
        }
        context.numbers.set_php_times(PhpTimes { queue, ran, cpu: times.cpu.map(|cpu| cpu.min(ran)) });
        Some(times.occupied.map_or(ran, |occupied| occupied.min(ran)))
    }

    /// Since when a worker has been seen to run it; now is the first time, if there was none. Only while a worker runs it.
    pub(super) fn has_run_since(&self) -> Instant {
        let since = self.running_since.get().unwrap_or_else(Instant::now);
        self.running_since.set(Some(since));
        since
    }

    /// Its slot, until it has ended.
    pub(super) fn slot(&self) -> Option<u16> {
        self.exchange.borrow().as_ref().map(Exchange::slot)
    }

    /// The worker that has answered it; `None` before.
    pub fn worker(&self) -> Option<WorkerId> {
        self.worker.get()
    }

    /// The fate of a request that fails now, for the log.
    pub(super) fn client_gets(&self, status: u16) -> Cow<'static, str> {
        if self.begun.get() { "cut off".into() } else { format!("answered {status}").into() }
    }

    /// Its method and path, for the log; `None` for a warm-up.
    pub(super) fn name(&self) -> Option<String> {
        // The query may contain secrets.
        let context = self.context.as_ref()?;
        let text = format!("{} {}", context.method, context.uri.path()).replace(|c: char| c.is_control(), "?");
        Some(text.chars().take(NAME_CHARS).collect())
    }

    /// Whether it took longer than `limits/timeout`.
    pub(super) fn is_overdue(&self) -> bool {
        self.reported_overdue.get().is_some()
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Moves the available part of the response from the slot into the spool. Returns the number of bytes.
fn receive(exchange: &mut Exchange, spool: &mut Spool) -> Result<usize, Trouble> {
    if let Some(read) = spool.append(RESPONSE_RING_BYTES, |memory| exchange.read(memory)) {
        return read.map_err(Trouble::Violation);
    }
    let mut bytes = Vec::new();
    exchange.read(&mut bytes).map_err(Trouble::Violation)?;
    spool.push(&bytes).map_err(Trouble::Disk)?;
    Ok(bytes.len())
}

/// Moves as much of the request's body into the slot as fits. A worker may make room as fast as it is filled.
fn feed(exchange: &mut Exchange, remainder: &mut Remainder, budget: &TurnBudget) -> Result<Moved, Trouble> {
    loop {
        let left = match remainder {
            Remainder::None => return Ok(Moved::UnderWay),
            Remainder::Memory(bytes) => bytes.len() as u64,
            Remainder::File(file, position) => file.length - *position,
        };
        if left == 0 {
            *remainder = Remainder::None;
            exchange.end_body(true);
            return Ok(Moved::UnderWay);
        }
        let space = exchange.body_space().map_err(Trouble::Violation)?;
        if space == 0 {
            return Ok(Moved::UnderWay);
        }
        if budget.is_spent() {
            return Ok(Moved::MoreToMove);
        }
        let part = space.min(left as usize);
        budget.spend(part);
        match remainder {
            Remainder::None => {}
            Remainder::Memory(bytes) => {
                let taken = exchange.write_body(bytes).map_err(Trouble::Violation)?;
                *bytes = bytes.slice(taken..);
            }
            Remainder::File(file, position) => {
                let mut portion = vec![0; part];
                if let Err(error) = file.file.read_exact_at(&mut portion, *position) {
                    exchange.end_body(false);
                    return Err(Trouble::Disk(error));
                }
                *position += exchange.write_body(&portion).map_err(Trouble::Violation)? as u64;
            }
        }
    }
}
