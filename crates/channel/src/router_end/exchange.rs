//! One request in the channel, as the router thread that submitted it sees it.
//!
//! It accepts the slot's word only where the table of transitions allows it after the state that was seen before, and a
//! position only within the ring. Anything else is a [`Violation`]: the owner then calls [`Exchange::quarantine`].

use super::rounds::Suspicion;
use super::shared::Shared;
use super::slot_register::NO_SUCH_WORKER;
use crate::memory::doorbell;
use crate::memory::layout::{BODY_RING_BYTES, MAX_WORKERS, RESPONSE_RING_BYTES, STACK_BYTES, STACK_TIME_SHIFT, flags};
use crate::memory::ring::{readable, writable};
use crate::slot_state::{SlotState, WorkerId, pack, unpack};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::violation::Violation;
use std::sync::Arc;
use std::time::Duration;

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No worker has taken it.
    Queued,
    /// This worker runs it.
    Running(WorkerId),
    /// The response is complete (and may still be in the ring).
    Done(WorkerId),
}

/// The times of a request, as its worker reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTimes {
    /// When PHP began to run it, by [`monotonic`](crate::account::monotonic).
    pub began: Duration,
    /// How long PHP ran it.
    pub ran: Duration,
    /// The processor time that it took, if that is known.
    pub cpu: Option<Duration>,
    /// How long it kept its worker from other requests, if that is known: all the time if it slept, or else the processor time.
    pub occupied: Option<Duration>,
}

/// A request in the channel. To drop it gives the slot back, as soon as that is safe.
#[derive(Debug)]
pub struct Exchange {
    shared: Arc<Shared>,
    slot: u16,
    sequence: u32,
    ticket: u64,
    progress: Progress,
    // The values that the router wrote into its own words of the slot, for `check`.
    thread: u16,
    flags: u32,
    body_written: u64,
    response_read: u64,
    /// It was claimed in this name, and no worker of this name lives.
    stranger: Suspicion<WorkerId>,
    released: bool,
}

/// A request that has been written into its slot and pushed on the queue.
pub(super) struct Submitted {
    pub slot: u16,
    pub sequence: u32,
    pub ticket: u64,
    pub thread: u16,
    pub flags: u32,
    pub body_written: u64,
}

// === impl Exchange ===

impl Exchange {
    pub(super) fn new(shared: Arc<Shared>, submitted: Submitted) -> Exchange {
        let Submitted { slot, sequence, ticket, thread, flags, body_written } = submitted;
        Exchange {
            shared,
            slot,
            sequence,
            ticket,
            progress: Progress::Queued,
            thread,
            flags,
            body_written,
            response_read: 0,
            stranger: Suspicion::none(),
            released: false,
        }
    }

    /// The request's slot, which [`RouterEnd::drain`](super::end::RouterEnd::drain) reports.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The slot's sequence number. It names the request, together with the slot.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The progress of the request.
    ///
    /// # Errors
    /// When the table of transitions does not allow the slot's word after the state that was seen before.
    pub fn progress(&mut self) -> Result<Progress, Violation> {
        let (sequence, state) = unpack(self.shared.view.slot(self.slot).state().load(Ordering::Acquire));
        if sequence != self.sequence {
            return Err(Violation("a slot's sequence number changed"));
        }
        let now = match state {
            Some(SlotState::Submitted) => Progress::Queued,
            Some(SlotState::Claimed(worker)) => Progress::Running(worker),
            Some(SlotState::Done(worker)) => Progress::Done(worker),
            Some(SlotState::Free) => return Err(Violation("a worker freed a slot")),
            None => return Err(Violation("a slot's state does not exist")),
        };
        self.progress = match (self.progress, now) {
            (before, now) if before == now => now,
            (Progress::Queued, Progress::Running(worker) | Progress::Done(worker)) if worker.index < MAX_WORKERS => now,
            (Progress::Running(before), Progress::Done(worker)) if before == worker => now,
            _ => return Err(Violation("a slot made a transition that the table does not allow")),
        };
        Ok(self.progress)
    }

    /// Finds what would make the request wait without end: a claim in the name of a worker that does not live, or a word of
    /// the router in the slot that another process has written. Call it some times per second.
    ///
    /// # Errors
    /// When it finds one, and the errors of [`Exchange::progress`].
    pub fn check(&mut self) -> Result<(), Violation> {
        let words = self.shared.view.slot(self.slot);
        // Only this thread writes these words, so that they can't be late.
        if words.response_read().load(Ordering::Relaxed) != self.response_read
            || words.body_written().load(Ordering::Relaxed) != self.body_written
            || words.flags().load(Ordering::Relaxed) != self.flags
            || words.thread().load(Ordering::Relaxed) != u32::from(self.thread)
        {
            return Err(Violation("a worker overwrote the router's words in a slot"));
        }
        let owner = match self.progress()? {
            Progress::Running(worker) => Some(worker),
            Progress::Queued | Progress::Done(_) => None,
        };
        let register = self.shared.lock();
        let stranger = owner.filter(|worker| !register.living.lives(*worker));
        if self.stranger.is_proven(stranger, register.rounds.number()) {
            return Err(Violation(NO_SUCH_WORKER));
        }
        Ok(())
    }

    /// Appends what the worker has written since the last call to `out`; returns the number of bytes.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, Violation> {
        let words = self.shared.view.slot(self.slot);
        let waiting = self.response_waiting()?;
        if waiting > 0 {
            words.response().read(self.response_read, waiting, out);
            self.response_read += waiting as u64;
            words.response_read().store(self.response_read, Ordering::Release);
            self.wake_waiting_worker();
        }
        Ok(waiting)
    }

    /// The number of bytes that the worker has written, and that [`read`](Self::read) has not taken.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn response_waiting(&self) -> Result<usize, Violation> {
        let written = self.shared.view.slot(self.slot).response_written().load(Ordering::Acquire);
        readable(RESPONSE_RING_BYTES, written, self.response_read)
            .map_err(|_| Violation("the length of a response is impossible"))
    }

    /// The number of bytes of the request's body that have been written into the channel.
    pub fn body_taken(&self) -> u64 {
        self.body_written
    }

    /// The number of bytes of the request's body that there is room for.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn body_space(&self) -> Result<usize, Violation> {
        let words = self.shared.view.slot(self.slot);
        writable(BODY_RING_BYTES, self.body_written, words.body_read().load(Ordering::Acquire))
            .map_err(|_| Violation("the position in a request's body is impossible"))
    }

    /// Writes more of the request's body into the channel; returns the number of bytes for which there was room.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn write_body(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let len = self.body_space()?.min(bytes.len());
        if len > 0 {
            let words = self.shared.view.slot(self.slot);
            words.body().write(self.body_written, &bytes[..len]);
            self.body_written += len as u64;
            words.body_written().store(self.body_written, Ordering::Release);
            self.wake_waiting_worker();
        }
        Ok(len)
    }

    /// Marks the body as whole, or (`false`) as one whose rest will not arrive.
    pub fn end_body(&mut self, whole: bool) {
        let flag = if whole { flags::BODY_END } else { flags::BODY_FAILED };
        self.flags |= flag;
        self.shared.view.slot(self.slot).flags().fetch_or(flag, Ordering::Release);
        self.wake_waiting_worker();
    }

    /// The times that the worker reports, once it is done; `None` if it reports none. A worker can write any value: they
    /// are for numbers only, and the caller limits them to what is possible.
    pub fn times(&self) -> Option<WorkerTimes> {
        let words = self.shared.view.slot(self.slot);
        let read = |word: &AtomicU64| Duration::from_nanos(word.load(Ordering::Relaxed));
        let (began, ran) = (read(words.began()), read(words.ran()));
        let minus_one = |word: &AtomicU64| word.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos);
        let (cpu, occupied) = (minus_one(words.cpu()), minus_one(words.occupied()));
        (!began.is_zero()).then_some(WorkerTimes { began, ran, cpu, occupied })
    }

    /// PHP's stack of a slow request, once it is done, and the time after which the worker took it. It may be any bytes.
    pub fn slow_stack(&self) -> Option<(Duration, Vec<u8>)> {
        let words = self.shared.view.slot(self.slot);
        let word = words.stack().load(Ordering::Relaxed);
        let len = (word & ((1 << STACK_TIME_SHIFT) - 1)) as usize;
        if len == 0 {
            return None;
        }
        let mut stack = Vec::new();
        words.read_stack(len.min(STACK_BYTES), &mut stack);
        Some((Duration::from_millis(word >> STACK_TIME_SHIFT), stack))
    }

    /// Whether the worker has given the request up, once it is done: what is in the ring is no response, or a part of one.
    pub fn is_abandoned(&self) -> bool {
        self.shared.view.slot(self.slot).abandoned().load(Ordering::Relaxed) != 0
    }

    /// The request has taken longer than allowed. Notifies its worker, which runs several requests at a time. The slot is
    /// given back when the worker has finished the request.
    pub fn time_out(self) {
        let view = &self.shared.view;
        view.slot(self.slot).flags().fetch_or(flags::TIMED_OUT, Ordering::SeqCst);
        let worker = match self.progress {
            Progress::Running(worker) => Some(worker),
            Progress::Queued | Progress::Done(_) => None,
        };
        let shared = Arc::clone(&self.shared);
        // It is marked as one whose client is gone before the worker looks at it.
        drop(self);
        worker.into_iter().for_each(|worker| doorbell::ring(shared.view.doorbell(worker.index)));
    }

    /// Cancels a queued request. `false` when a worker has claimed it already (or the word is wrong).
    pub fn cancel(&mut self) -> bool {
        let free = self.progress == Progress::Queued
            && self
                .shared
                .view
                .slot(self.slot)
                .state()
                .compare_exchange(
                    pack(self.sequence, SlotState::Submitted),
                    pack(self.sequence, SlotState::Free),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok();
        if free {
            self.released = true;
            self.shared.cancelled(self.slot, self.sequence, self.ticket);
        }
        free
    }

    /// Pushes the hint again if it was taken but the slot was not claimed: the worker died in between. If the worker is
    /// only slow, a second hint does no harm: one claim succeeds.
    pub fn resubmit_if_stranded(&mut self) {
        if self.progress == Progress::Queued && self.shared.is_taken(self.ticket) {
            self.ticket = self.shared.push(self.slot, self.sequence);
            self.shared.view.wake_a_worker();
        }
    }

    /// A worker died: `true` when it ran this request, which is lost then. The slot is given back.
    ///
    /// # Errors
    /// The errors of [`Exchange::progress`].
    pub fn worker_died(&mut self, worker: WorkerId) -> Result<bool, Violation> {
        let lost = self.progress()? == Progress::Running(worker);
        if lost {
            self.release();
        }
        Ok(lost)
    }

    /// Sets the slot aside after a violation, until
    /// [`RouterEnd::release_quarantined`](super::end::RouterEnd::release_quarantined). The slots of clients that are gone
    /// are set aside with it: the worker that owns them can't be trusted either.
    pub fn quarantine(mut self) {
        if self.released {
            return;
        }
        self.released = true;
        self.shared.quarantine(self.slot, self.sequence);
    }

    fn release(&mut self) {
        self.released = true;
        self.shared.release(self.slot, self.sequence);
    }

    fn wake_waiting_worker(&self) {
        fence(Ordering::SeqCst);
        let words = self.shared.view.slot(self.slot);
        if words.waiting().load(Ordering::SeqCst) != 0 {
            doorbell::ring(words.doorbell());
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if matches!(self.progress, Progress::Done(_)) {
            self.release();
        } else if !self.cancel() {
            self.shared.orphan(self.slot, self.sequence);
        }
    }
}
