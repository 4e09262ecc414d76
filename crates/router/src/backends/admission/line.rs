//! The requests of a generation that gives each of them something of its own, such as a worker or a place for a connection:
//! the requests that wait in its line, and the requests that have it.
//!
//! A request that is dropped while it waits leaves the line. If it had its turn meanwhile, the next request gets that.

use crate::backends::admission::gate::Gate;
use crate::backends::admission::queue::Arrival;
use crate::response::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A generation with a line.
pub trait Line {
    /// The thing that a request gets in its turn.
    type Turn;

    /// Which requests may wait, and which are rejected.
    fn admission(&self) -> &Admission;

    /// How many requests wait, and for how many workers or places.
    fn arrival(&self) -> Arrival;

    /// The turn of a request of this thread that waits since then, or its ticket in the line.
    fn join(&self, since: Instant) -> Result<Self::Turn, Waiting<Self::Turn>>;

    /// A request of this thread does not wait any more. If it had its turn meanwhile, the next request gets that.
    fn leave(&self, waiting: Waiting<Self::Turn>);

    /// Rejects a request before its body is read, if it would be rejected afterwards.
    ///
    /// # Errors
    /// 503.
    fn reject_early(&self) -> impl Future<Output = Result<(), Failure>> {
        self.admission().gate.reject_early(|| self.arrival())
    }

    /// Admits a request to the queue.
    ///
    /// # Errors
    /// 503.
    fn admit(&self) -> impl Future<Output = Result<Admitted, Failure>> {
        self.admission().gate.enqueue(Instant::now(), || self.arrival())
    }

    /// Rejects a request whose time is over.
    fn reject_late(&self) -> impl Future<Output = Failure> {
        self.admission().gate.reject_late(|| self.arrival())
    }
}

/// The right of a request to wait: since when, and for how long.
pub type Admitted = (Instant, Duration);

/// Since when a request waits, and a number that no other request of the line has.
pub type Ticket = (Instant, u64);

/// The ticket of a request in a line.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Its place in the order of the line.
    pub ticket: Ticket,
    /// Gets what the request waits for.
    pub turn: oneshot::Receiver<T>,
}

/// The requests of a generation: which of them may wait, and how many do.
#[derive(Debug)]
pub struct Admission {
    gate: Gate,
    waiting: AtomicU64,
    running: AtomicU64,
}

/// A request that waits. Dropping it before the wait has ended cancels the request.
pub struct WaitingRequest<'g, L: Line> {
    generation: &'g L,
    /// Its ticket, while it is in the line.
    waiting: Option<Waiting<L::Turn>>,
    has_ended: bool,
}

/// A request that has what it waited for. Dropping it ends it.
#[derive(Debug)]
pub struct RunningRequest<L: Line>(Arc<L>);

// === impl Admission ===

impl Admission {
    /// Without requests; none waits longer than this.
    pub fn new(application: &str, queue_timeout: Duration) -> Admission {
        Admission {
            gate: Gate::new(application, queue_timeout),
            waiting: AtomicU64::new(0),
            running: AtomicU64::new(0),
        }
    }

    /// Waits for something, as long as a request may wait.
    pub async fn in_time<T>(&self, admitted: Admitted, something: impl Future<Output = T>) -> Option<T> {
        self.gate.in_time(admitted, something).await
    }

    /// A request was answered.
    pub fn finished(&self) {
        self.gate.finished(1);
        self.gate.measure(self.waiting(), Instant::now());
    }

    /// How many requests wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many requests wait, or have what they waited for.
    pub fn active(&self) -> u64 {
        self.running.load(Ordering::Relaxed) + self.waiting()
    }

    /// How many requests were answered 503 by the queue.
    pub fn rejected(&self) -> u64 {
        self.gate.rejected()
    }
}

// === impl WaitingRequest ===

impl<L: Line> WaitingRequest<'_, L> {
    /// A request that waits from now on.
    pub fn new(generation: &L) -> WaitingRequest<'_, L> {
        generation.admission().waiting.fetch_add(1, Ordering::Relaxed);
        WaitingRequest { generation, waiting: None, has_ended: false }
    }

    /// Waits for its turn. `None` when it may not wait any longer.
    pub async fn turn(&mut self, admitted: Admitted) -> Option<L::Turn> {
        let waiting = match self.generation.join(admitted.0) {
            Ok(turn) => return Some(turn),
            Err(waiting) => self.waiting.insert(waiting),
        };
        let turn = self.generation.admission().in_time(admitted, &mut waiting.turn).await?;
        self.waiting = None;
        turn.ok()
    }

    /// The wait is over: the request has what it waited for, or is rejected.
    pub fn end(&mut self) {
        self.leave();
        self.has_ended = true;
    }

    fn leave(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.generation.leave(waiting);
        }
    }
}

impl<L: Line> Drop for WaitingRequest<'_, L> {
    fn drop(&mut self) {
        self.leave();
        let admission = self.generation.admission();
        admission.waiting.fetch_sub(1, Ordering::Relaxed);
        if !self.has_ended {
            admission.gate.cancel();
        }
    }
}

// === impl RunningRequest ===

impl<L: Line> RunningRequest<L> {
    /// A request that has what it waited for, from now on.
    pub fn new(generation: &Arc<L>) -> RunningRequest<L> {
        generation.admission().running.fetch_add(1, Ordering::Relaxed);
        RunningRequest(Arc::clone(generation))
    }
}

impl<L: Line> Drop for RunningRequest<L> {
    fn drop(&mut self) {
        self.0.admission().running.fetch_sub(1, Ordering::Relaxed);
    }
}
