//! The router's end: submits requests, and sweeps some times per second.

use super::exchange::{Exchange, Submitted};
use super::shared::Shared;
use super::slot_register::SlotRegister;
use crate::lock_free::mailbox::Visits;
use crate::memory::doorbell;
use crate::memory::layout::{BODY_RING_BYTES, Geometry, MAX_THREADS, REQUEST_HEAD_BYTES, flags};
use crate::slot_state::{SlotState, WorkerId, pack, unpack};
use crate::sync::Ordering;
use crate::view::View;
use crate::violation::Violation;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// The router's end. Its clones, one for each of the router's threads, are the same end.
#[derive(Clone, Debug)]
pub struct RouterEnd {
    shared: Arc<Shared>,
}

/// Why a request was not submitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// All slots are taken: wait until one is free.
    NoSlot,
    /// The head is longer than [`REQUEST_HEAD_BYTES`].
    HeadTooLarge,
    /// A worker broke the submission queue: the generation's workers must be replaced.
    Broken(Violation),
}

// === impl RouterEnd ===

impl RouterEnd {
    /// Maps the channel and clears what a former router left in it: requests in the queue are dropped, and running requests
    /// continue as requests of clients that are gone.
    ///
    /// # Errors
    /// When the memory is not a channel of this geometry, or can't be mapped.
    pub fn attach(memfd: impl AsFd, geometry: Geometry) -> io::Result<RouterEnd> {
        let view = View::map(memfd, geometry)?;
        let tail = view.queue().restart();
        view.wake_threshold().store(0, Ordering::Relaxed);
        let mut register = SlotRegister::new(geometry.threads);
        for slot in (0..geometry.slots).rev() {
            let words = view.slot(slot);
            let seen = words.state().load(Ordering::Acquire);
            let (sequence, state) = unpack(seen);
            let running = matches!(state, Some(SlotState::Claimed(_)))
                || (state == Some(SlotState::Submitted)
                    && words
                        .state()
                        .compare_exchange(seen, pack(sequence, SlotState::Free), Ordering::AcqRel, Ordering::Acquire)
                        .is_err());
            if running {
                words.flags().fetch_or(flags::CLIENT_GONE, Ordering::SeqCst);
                doorbell::ring(words.doorbell());
                register.add_orphan(slot, sequence, true);
            } else {
                words.state().store(pack(sequence, SlotState::Free), Ordering::Release);
                register.add_free(slot, sequence);
            }
        }
        Ok(RouterEnd { shared: Arc::new(Shared::new(view, tail, register)) })
    }

    /// Writes a request into a free slot and wakes a worker.
    ///
    /// Workers report its progress to the mailbox of `thread`. `body` is the beginning of the request's body, as much as
    /// fits; [`Exchange::body_taken`] returns how much was taken. `complete` means that `body` is the whole body.
    ///
    /// # Errors
    /// See [`Refused`]. The request was not submitted.
    pub fn submit(&self, thread: u16, head: &[u8], body: &[u8], complete: bool) -> Result<Exchange, Refused> {
        let exchange = self.submit_without_wake(thread, head, body, complete)?;
        self.shared.view.wake_a_worker();
        Ok(exchange)
    }

    /// As [`RouterEnd::submit`], but a worker that sleeps does not wake before [`RouterEnd::wake_worker`]: it finds more
    /// requests then.
    ///
    /// # Errors
    /// See [`Refused`]. The request was not submitted.
    pub fn submit_without_wake(
        &self,
        thread: u16,
        head: &[u8],
        body: &[u8],
        complete: bool,
    ) -> Result<Exchange, Refused> {
        if head.len() > REQUEST_HEAD_BYTES {
            return Err(Refused::HeadTooLarge);
        }
        let view = &self.shared.view;
        let hints = self.shared.hints().map_err(Refused::Broken)?;
        if hints + u64::from(MAX_THREADS) >= view.queue().cells.len() as u64 {
            return Err(Refused::NoSlot);
        }
        let (slot, last_sequence) = self.shared.take_free_slot().ok_or(Refused::NoSlot)?;
        let sequence = last_sequence.wrapping_add(1);

        let words = view.slot(slot);
        let taken = body.len().min(BODY_RING_BYTES);
        words.write_head(head);
        words.body().write(0, &body[..taken]);
        words.head_length().store(head.len() as u32, Ordering::Relaxed);
        words.thread().store(thread.into(), Ordering::Relaxed);
        words.body_written().store(taken as u64, Ordering::Relaxed);
        words.body_read().store(0, Ordering::Relaxed);
        words.response_read().store(0, Ordering::Relaxed);
        words.response_written().store(0, Ordering::Relaxed);
        words.waiting().store(0, Ordering::Relaxed);
        words.abandoned().store(0, Ordering::Relaxed);
        let flags = if complete && taken == body.len() { flags::BODY_END } else { 0 };
        words.flags().store(flags, Ordering::Relaxed);
        words.state().store(pack(sequence, SlotState::Submitted), Ordering::Release);

        let ticket = self.shared.push(slot, sequence);
        let submitted = Submitted { slot, sequence, ticket, thread, flags, body_written: taken as u64 };
        Ok(Exchange::new(Arc::clone(&self.shared), submitted))
    }

    /// The number of workers that sleep, which [`RouterEnd::wake_worker`] would wake. The others find the requests that were
    /// submitted before this call.
    pub fn sleepers(&self) -> u32 {
        self.shared.view.idle().sleepers()
    }

    /// Wakes a worker if more requests than `threshold` wait. `false`: no worker was woken.
    pub fn wake_worker(&self, threshold: u32) -> bool {
        self.shared.view.queue().has_more_hints_than(threshold) && self.shared.view.wake_a_worker()
    }

    /// From now on, a worker that takes a request wakes another one if more requests than this wait; at first, 0.
    pub fn set_wake_threshold(&self, threshold: u32) {
        let word = self.shared.view.wake_threshold();
        if word.load(Ordering::Relaxed) != threshold {
            word.store(threshold, Ordering::Relaxed);
        }
    }

    /// The ticket of the next request.
    pub fn next_ticket(&self) -> u64 {
        self.shared.tail.load(Ordering::Acquire)
    }

    /// Whether a request waits that was submitted before this ticket was the next one. A hostile worker can make it
    /// return anything: do not loop on it without a pause.
    pub fn waits_since(&self, ticket: u64) -> bool {
        self.shared.view.queue().has_hint() && !self.shared.is_taken(ticket.wrapping_sub(1))
    }

    /// The number of workers that report to be idle, and of requests that wait for a worker. A hostile worker may have
    /// written either.
    pub fn demand(&self) -> (u32, u64) {
        (self.sleepers(), self.requests_waiting())
    }

    /// The visits of a thread, for [`RouterEnd::drain`].
    pub fn visits(&self) -> Visits {
        Visits::new(self.shared.view.layout.geometry.slots)
    }

    /// Passes each slot that wants attention, or was put aside, to `visit`, in a circle, while `visit` returns `true`: the
    /// others are put aside. Ignore the slots of no exchange of the caller: [`RouterEnd::sweep`] handles them.
    pub fn drain(&self, thread: u16, visits: &Visits, visit: impl FnMut(u16) -> bool) {
        self.shared.view.mailbox(thread).drain(visits, visit);
    }

    /// Announces that the thread is about to sleep until its eventfd is written. `false`: a slot wants attention already. Slots
    /// that are put aside are the caller's matter.
    #[must_use]
    pub fn prepare_to_sleep(&self, thread: u16) -> bool {
        self.shared.view.mailbox(thread).prepare_to_sleep()
    }

    /// The thread is awake: no worker needs to write its eventfd.
    pub fn woke(&self, thread: u16) {
        self.shared.view.mailbox(thread).woke();
    }

    /// Frees the slots of clients that are gone whose workers have finished, wakes workers if requests wait, and repairs
    /// what a killed or hostile worker left. It is cheap: call it some times per second in each thread. Returns the number
    /// of requests of clients that are gone that have been finished since the last call.
    ///
    /// # Errors
    /// When a worker broke the submission queue, or a slot that no exchange owns (it is quarantined). Each call returns the
    /// error until [`RouterEnd::release_quarantined`].
    pub fn sweep(&self, thread: u16, now: Instant) -> Result<usize, Violation> {
        let Shared { view, tail, .. } = &*self.shared;
        let hints = self.shared.hints();
        let mut register = self.shared.lock();
        let round_is_over = register.rounds.sweep(thread, now);
        let finished = register.collect_orphans(view, |_| false);
        self.shared.collect_hinted(&mut register);
        if hints.is_ok() {
            register.check_queue(view, tail);
        }
        if round_is_over {
            register.notify_quarantined(view);
            register.check_free(view);
            register.check_claims(view);
            register.wake_all_if_none_is_taken(view);
        }
        let broken = register.broken();
        drop(register);
        self.wake_worker(0);
        broken.map_or(hints.map(|_| finished), Err)
    }

    /// The thread exits: it does not sweep any more.
    pub fn leave(&self, thread: u16) {
        self.shared.lock().rounds.leave(thread);
    }

    /// A worker is about to be started: from now on it may claim requests.
    pub fn worker_started(&self, worker: WorkerId) {
        self.shared.lock().living.started(worker);
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.shared.view.layout.geometry.slots.into()
    }

    /// The most requests that one worker runs at a time.
    pub fn claims(&self) -> usize {
        self.shared.view.layout.geometry.claims.into()
    }

    /// The number of workers that live.
    pub fn living_workers(&self) -> usize {
        self.shared.lock().living.indexes().count()
    }

    /// A worker is dead: frees the slots of its requests whose clients are gone. For the other requests call
    /// [`Exchange::worker_died`].
    pub fn worker_died(&self, worker: WorkerId) {
        let mut register = self.shared.lock();
        register.living.died(worker);
        register.collect_orphans(&self.shared.view, |owner| owner == worker);
        drop(register);
        self.wake_worker(0);
    }

    /// All workers that ran when the rules were broken are dead: frees the slots in quarantine, and empties the submission
    /// queue, because these workers may have written there too. Call [`Exchange::resubmit_if_stranded`] on every exchange
    /// after this.
    pub fn release_quarantined(&self) {
        let Shared { view, tail, .. } = &*self.shared;
        let mut register = self.shared.lock();
        view.queue().repair(tail);
        register.release_quarantined(view);
    }

    /// The number of free slots: all of them, when no request runs or waits.
    pub fn free_slots(&self) -> usize {
        let mut register = self.shared.lock();
        self.shared.collect_hinted(&mut register);
        register.free()
    }

    /// The number of slots with a request that waits, or that a worker runs.
    pub fn slots_in_use(&self) -> usize {
        let mut register = self.shared.lock();
        self.shared.collect_hinted(&mut register);
        self.slots().saturating_sub(register.free() + register.hinted())
    }

    /// The number of hints in the queue, including those of cancelled requests; 0 if the queue's words are wrong.
    pub fn queued(&self) -> u64 {
        self.shared.hints().unwrap_or(0)
    }

    /// The number of requests that wait for a worker, if the queue's words are right.
    pub fn requests_waiting(&self) -> u64 {
        self.shared.requests_waiting()
    }
}
