//! The router's end of a channel: submits requests, reads responses, and believes nothing.
//!
//! Each request in the channel is an [`Exchange`], owned by the router thread that submitted it. What a worker can write
//! is checked against what the router keeps in its own memory: sequence numbers, positions, what was seen before. A
//! broken rule is a [`Violation`]: the request fails, its slot is set aside until the workers of that moment are gone,
//! and the caller has them killed. What can't fail: nothing here waits, allocates from a number that a worker wrote, or
//! panics on one.

use crate::exchange::{Exchange, Progress};
use crate::idle;
use crate::layout::{Geometry, REQUEST_HEAD_BYTES, flags};
use crate::state::{SlotState, Violation, WorkerId, pack, unpack};
use crate::submission::Hint;
use crate::sync::{AtomicU64, Ordering};
use crate::view::View;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// The router's end. Shared by its threads.
#[derive(Debug)]
pub struct RouterEnd {
    pub(crate) view: View,
    /// The next ticket of the submission queue. Only here: workers can't touch it.
    tail: AtomicU64,
    slots: Mutex<Slots>,
}

/// The slots that no exchange owns.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Free ones, the last used on top, with the sequence number of their last request.
    pub(crate) free: Vec<(u16, u32)>,
    /// Free, but a hint of their cancelled request is still in the queue: slot, sequence, ticket.
    pub(crate) hinted: Vec<(u16, u32, u64)>,
    /// A worker still runs the request of a client that left (or of a router before this one).
    pub(crate) orphans: Vec<(u16, u32)>,
    /// A worker broke the rules with them, or they were orphans at a moment when one did.
    pub(crate) quarantined: Vec<(u16, u32)>,
    /// What was found wrong with an orphan, until [`RouterEnd::sweep`] reports it.
    broken: Option<Violation>,
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
    /// Maps the channel. What a former router left in it is cleared: queued requests are forgotten, and running ones
    /// end as those of clients that left.
    ///
    /// # Errors
    /// When the memory is not a channel of this geometry, or can't be mapped.
    pub fn attach(memfd: impl AsFd, geometry: Geometry) -> io::Result<Arc<RouterEnd>> {
        let view = View::map(memfd, geometry)?;
        let tail = view.queue().restart();
        let mut slots = Slots::default();
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
                idle::ring(words.doorbell());
                slots.orphans.push((slot, sequence));
            } else {
                words.state().store(pack(sequence, SlotState::Free), Ordering::Release);
                slots.free.push((slot, sequence));
            }
        }
        Ok(Arc::new(RouterEnd { view, tail: AtomicU64::new(tail), slots: Mutex::new(slots) }))
    }

    /// Writes a request into a free slot and lets a worker know.
    ///
    /// `thread` is told of its progress. `body` is the beginning of the request's body, as much as fits; how much was
    /// taken is [`Exchange::body_taken`]. `complete` says that `body` is all of it.
    ///
    /// # Errors
    /// See [`Refused`]. The request was not submitted.
    pub fn submit(
        self: &Arc<Self>,
        thread: u16,
        head: &[u8],
        body: &[u8],
        complete: bool,
    ) -> Result<Exchange, Refused> {
        if head.len() > REQUEST_HEAD_BYTES {
            return Err(Refused::HeadTooLarge);
        }
        let queue = self.view.queue();
        let waiting = self.waiting().map_err(Refused::Broken)?;
        if waiting + u64::from(crate::MAX_THREADS) >= queue.cells.len() as u64 {
            return Err(Refused::NoSlot);
        }
        let (slot, last_sequence) = self.take_free_slot().ok_or(Refused::NoSlot)?;
        let sequence = last_sequence.wrapping_add(1);

        let words = self.view.slot(slot);
        let taken = body.len().min(words.body.size);
        self.view.memory.copy_in(words.head_offset, head);
        words.body.write(&self.view.memory, 0, &body[..taken]);
        words.head_length().store(head.len() as u32, Ordering::Relaxed);
        words.thread().store(thread.into(), Ordering::Relaxed);
        words.body_written().store(taken as u64, Ordering::Relaxed);
        words.body_read().store(0, Ordering::Relaxed);
        words.response_read().store(0, Ordering::Relaxed);
        words.response_written().store(0, Ordering::Relaxed);
        words.waiting().store(0, Ordering::Relaxed);
        let ended = if complete && taken == body.len() { flags::BODY_END } else { 0 };
        words.flags().store(ended, Ordering::Relaxed);
        words.state().store(pack(sequence, SlotState::Submitted), Ordering::Release);

        let ticket = self.push(slot, sequence);
        Ok(Exchange {
            channel: Arc::clone(self),
            slot,
            sequence,
            ticket,
            progress: Progress::Queued,
            body_written: taken as u64,
            response_read: 0,
            released: false,
        })
    }

    /// Hands each slot that asks for attention to `visit`. Slots that no exchange of the caller owns are for
    /// [`RouterEnd::sweep`].
    pub fn drain(&self, thread: u16, visit: impl FnMut(u16)) {
        self.view.mailbox(thread).drain(visit);
    }

    /// Says that the thread is about to sleep until its eventfd is written. `false`: something waits already.
    #[must_use]
    pub fn prepare_to_sleep(&self, thread: u16) -> bool {
        self.view.mailbox(thread).prepare_to_sleep()
    }

    /// Says that the thread is awake: nobody needs to write its eventfd.
    pub fn woke(&self, thread: u16) {
        self.view.mailbox(thread).woke();
    }

    /// Gives back the slots whose clients left and whose workers have finished since, and wakes a worker if requests
    /// wait: what a killed or hostile worker spoiled is mended here. Cheap; call it now and then.
    ///
    /// # Errors
    /// When a worker broke the submission queue, or the slot of a request whose client has left (it is set aside).
    pub fn sweep(&self) -> Result<(), Violation> {
        self.collect_orphans(|_| false);
        self.wake_if_requests_wait();
        let broken = self.lock().broken.take();
        broken.map_or(Ok(()), Err)?;
        self.waiting().map(drop)
    }

    /// A worker is dead: gives back the slots of its orphaned requests. Exchanges find out by themselves: see
    /// [`Exchange::worker_died`].
    pub fn worker_died(&self, worker: WorkerId) {
        self.collect_orphans(|owner| owner == worker);
        self.wake_if_requests_wait();
    }

    /// All workers that ran when the rules were broken are dead: gives back the slots that were set aside, and empties
    /// the submission queue, for they may have written there too. Call [`Exchange::resubmit_if_stranded`] on every
    /// exchange after this.
    pub fn release_quarantined(&self) {
        let mut slots = self.lock();
        let slots = &mut *slots;
        self.view.queue().mend(&self.tail);
        for (slot, sequence) in slots.quarantined.drain(..) {
            self.view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
            slots.free.push((slot, sequence));
        }
    }

    /// How many slots are free now. All of them, when nothing is under way.
    pub fn free_slots(&self) -> usize {
        let mut slots = self.lock();
        self.collect_hinted(&mut slots);
        slots.free.len()
    }

    /// How many requests wait for a worker, as far as the queue can be believed.
    pub fn queued(&self) -> u64 {
        self.waiting().unwrap_or(0)
    }

    fn waiting(&self) -> Result<u64, Violation> {
        let waiting = || self.view.queue().waiting(&self.tail);
        waiting().or_else(|_| {
            // Perhaps another thread mends the queue at this moment: it holds the lock meanwhile.
            let _slots = self.lock();
            waiting().map_err(|_| Violation("the head of the submission queue is out of range"))
        })
    }

    pub(crate) fn push(&self, slot: u16, sequence: u32) -> u64 {
        let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
        self.view.queue().publish(ticket, Hint { slot, sequence: sequence as u16 });
        self.view.wake_a_worker();
        ticket
    }

    fn take_free_slot(&self) -> Option<(u16, u32)> {
        let mut slots = self.lock();
        if slots.free.is_empty() {
            self.collect_hinted(&mut slots);
        }
        slots.free.pop()
    }

    fn collect_hinted(&self, slots: &mut Slots) {
        let queue = self.view.queue();
        let Slots { free, hinted, .. } = slots;
        hinted.retain(|(slot, sequence, ticket)| {
            let taken = queue.is_taken(*ticket);
            if taken {
                free.push((*slot, *sequence));
            }
            !taken
        });
    }

    fn collect_orphans(&self, is_dead: impl Fn(WorkerId) -> bool) {
        let mut slots = self.lock();
        let Slots { free, orphans, quarantined, broken, .. } = &mut *slots;
        orphans.retain(|(slot, sequence)| {
            let word = self.view.slot(*slot).state();
            let ended = match unpack(word.load(Ordering::Acquire)) {
                (seen, Some(SlotState::Done(_))) if seen == *sequence => true,
                (seen, Some(SlotState::Claimed(worker))) if seen == *sequence => is_dead(worker),
                _ => {
                    quarantined.push((*slot, *sequence));
                    *broken = Some(Violation("the slot of a request whose client has left was overwritten"));
                    return false;
                }
            };
            if ended {
                word.store(pack(*sequence, SlotState::Free), Ordering::Release);
                free.push((*slot, *sequence));
            }
            !ended
        });
    }

    fn wake_if_requests_wait(&self) {
        if self.view.queue().has_hint() {
            self.view.wake_a_worker();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing panics while the lock is held; if it did, the lists would still be whole.
        self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
