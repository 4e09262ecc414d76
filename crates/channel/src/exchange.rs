//! One request in the channel, as the router thread that submitted it sees it.
//!
//! It believes the slot's word only where the table of transitions allows it after what was seen before, and a position
//! only within the ring. What fails is a [`Violation`]: the owner then gives the exchange to [`Exchange::quarantine`].

use crate::idle;
use crate::layout::{MAX_WORKERS, REQUEST_HEAD_BYTES, flags};
use crate::ring::{readable, writable};
use crate::rounds::Suspicion;
use crate::router_end::{NO_SUCH_WORKER, RouterEnd};
use crate::state::{SlotState, Violation, WorkerId, pack, unpack};
use crate::sync::{Ordering, fence};
use std::sync::Arc;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No worker has taken it.
    Queued,
    /// This worker runs it.
    Running(WorkerId),
    /// The response is complete (and may still wait in the ring).
    Done(WorkerId),
}

/// A request in the channel. Dropping it gives the slot back as soon as that is safe.
#[derive(Debug)]
pub struct Exchange {
    channel: Arc<RouterEnd>,
    slot: u16,
    sequence: u32,
    ticket: u64,
    progress: Progress,
    // What the router wrote into its own words of the slot, for `check`.
    thread: u16,
    flags: u32,
    body_written: u64,
    response_read: u64,
    /// It was claimed in this name, and nobody of this name lives.
    stranger: Suspicion<WorkerId>,
    released: bool,
}

/// A request as it has been written into its slot and pushed on the queue.
pub(crate) struct Submitted {
    pub slot: u16,
    pub sequence: u32,
    pub ticket: u64,
    pub thread: u16,
    pub flags: u32,
    pub body_written: u64,
}

// === impl Exchange ===

impl Exchange {
    pub(crate) fn new(channel: Arc<RouterEnd>, submitted: Submitted) -> Exchange {
        let Submitted { slot, sequence, ticket, thread, flags, body_written } = submitted;
        Exchange {
            channel,
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

    /// The slot that the request is in: what [`RouterEnd::drain`] reports.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The slot's sequence number: with the slot, the name of the request.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The request's head as it lies in the slot: as it was submitted, unless a worker has written there.
    pub fn request_head(&self) -> Vec<u8> {
        let view = &self.channel.view;
        let words = view.slot(self.slot);
        let len = (words.head_length().load(Ordering::Relaxed) as usize).min(REQUEST_HEAD_BYTES);
        let mut head = Vec::new();
        view.memory.copy_out(words.head_offset, len, &mut head);
        head
    }

    /// How far the request has come.
    ///
    /// # Errors
    /// When the slot's word is one that the table of transitions does not allow after what was seen before.
    pub fn progress(&mut self) -> Result<Progress, Violation> {
        let (sequence, state) = unpack(self.channel.view.slot(self.slot).state().load(Ordering::Acquire));
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
            _ => return Err(Violation("a slot's state went where it may not")),
        };
        Ok(self.progress)
    }

    /// Looks for what would make the request wait for ever: a claim in the name of a worker that does not live, or words of
    /// the router's in the slot that somebody else has written. Call it some times a second.
    ///
    /// # Errors
    /// When it finds such, and as [`Exchange::progress`].
    pub fn check(&mut self) -> Result<(), Violation> {
        let words = self.channel.view.slot(self.slot);
        // Only this thread writes them, so that they can't be late.
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
        let books = self.channel.lock();
        let stranger = owner.filter(|worker| !books.living.lives(*worker));
        if self.stranger.is_proven(stranger, books.rounds.number()) {
            return Err(Violation(NO_SUCH_WORKER));
        }
        Ok(())
    }

    /// Appends what the worker has written since to `out`; returns how many bytes.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, Violation> {
        let words = self.channel.view.slot(self.slot);
        let written = words.response_written().load(Ordering::Acquire);
        let waiting = readable(words.response.size, written, self.response_read)
            .map_err(|_| Violation("the length of a response is impossible"))?;
        if waiting > 0 {
            words.response.read(&self.channel.view.memory, self.response_read, waiting, out);
            self.response_read += waiting as u64;
            words.response_read().store(self.response_read, Ordering::Release);
            self.wake_waiting_worker();
        }
        Ok(waiting)
    }

    /// How many bytes of the request's body have been put into the channel so far.
    pub fn body_taken(&self) -> u64 {
        self.body_written
    }

    /// How many bytes of the request's body have room now.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn body_space(&self) -> Result<usize, Violation> {
        let words = self.channel.view.slot(self.slot);
        writable(words.body.size, self.body_written, words.body_read().load(Ordering::Acquire))
            .map_err(|_| Violation("the position in a request's body is impossible"))
    }

    /// Puts more of the request's body into the channel; returns how many bytes had room.
    ///
    /// # Errors
    /// When the worker's position is impossible.
    pub fn write_body(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let len = self.body_space()?.min(bytes.len());
        if len > 0 {
            let words = self.channel.view.slot(self.slot);
            words.body.write(&self.channel.view.memory, self.body_written, &bytes[..len]);
            self.body_written += len as u64;
            words.body_written().store(self.body_written, Ordering::Release);
            self.wake_waiting_worker();
        }
        Ok(len)
    }

    /// Says that the whole body is in the channel, or (`false`) that the rest will never come.
    pub fn end_body(&mut self, whole: bool) {
        let flag = if whole { flags::BODY_END } else { flags::BODY_FAILED };
        self.flags |= flag;
        self.channel.view.slot(self.slot).flags().fetch_or(flag, Ordering::Release);
        self.wake_waiting_worker();
    }

    /// Takes a queued request back. `false` when a worker has it already (or the word can't be believed).
    pub fn cancel(&mut self) -> bool {
        let free = self.progress == Progress::Queued
            && self
                .channel
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
            self.channel.taken_back(self.slot, self.sequence, self.ticket);
        }
        free
    }

    /// Pushes the hint again if it was taken, but the slot not claimed: the worker died in between. A second hint for a
    /// worker that is only slow does no harm: one claim succeeds.
    pub fn resubmit_if_stranded(&mut self) {
        if self.progress == Progress::Queued && self.channel.is_taken(self.ticket) {
            self.ticket = self.channel.push(self.slot, self.sequence);
        }
    }

    /// A worker died: `true` when it was this request's, which then will never be finished. The slot is given back.
    ///
    /// # Errors
    /// As [`Exchange::progress`].
    pub fn worker_died(&mut self, worker: WorkerId) -> Result<bool, Violation> {
        let lost = self.progress()? == Progress::Running(worker);
        if lost {
            self.release();
        }
        Ok(lost)
    }

    /// Sets the slot aside after a violation, until [`RouterEnd::release_quarantined`]. The slots of clients that left
    /// go with it: whoever owns them can't be believed either.
    pub fn quarantine(mut self) {
        if self.released {
            return;
        }
        self.released = true;
        self.channel.quarantine(self.slot, self.sequence);
    }

    fn release(&mut self) {
        self.released = true;
        self.channel.release(self.slot, self.sequence);
    }

    fn wake_waiting_worker(&self) {
        fence(Ordering::SeqCst);
        let words = self.channel.view.slot(self.slot);
        if words.waiting().load(Ordering::SeqCst) != 0 {
            idle::ring(words.doorbell());
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
            self.channel.adopt(self.slot, self.sequence);
        }
    }
}
