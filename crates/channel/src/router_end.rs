//! The router's end of a channel: submits requests, reads responses, and believes nothing.
//!
//! Each request in the channel is an [`Exchange`], owned by the router thread that submitted it. What a worker can write
//! is checked against what the router keeps in its own memory: sequence numbers, positions, what was seen before, which
//! workers live. A broken rule is a [`Violation`]: the request fails, its slot is set aside until the workers of that
//! moment are gone, and the caller has them killed. What can't fail: nothing here waits, allocates from a number that a
//! worker wrote, or panics on one.
//!
//! What would cost something on each request is looked at by [`RouterEnd::sweep`] and [`Exchange::check`], which every
//! thread calls some times a second.

use crate::exchange::{Exchange, Submitted};
use crate::idle;
use crate::layout::{Geometry, REQUEST_HEAD_BYTES, flags};
use crate::roster::Roster;
use crate::rounds::{Rounds, Suspicion};
use crate::state::{SlotState, Violation, WorkerId, pack, unpack};
use crate::submission::Hint;
use crate::sync::{AtomicU64, Ordering};
use crate::view::View;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// The router's end. Shared by its threads.
#[derive(Debug)]
pub struct RouterEnd {
    pub(crate) view: View,
    /// The next ticket of the submission queue. Only here: workers can't touch it.
    tail: AtomicU64,
    /// How many hints in the queue are of requests that were taken back, at the last look.
    cancelled: AtomicU64,
    books: Mutex<Books>,
}

/// What the router's threads know together: the slots that no exchange owns, and the workers.
#[derive(Debug)]
pub(crate) struct Books {
    /// Free slots, the last used on top, with the sequence number of their last request.
    free: Vec<(u16, u32)>,
    /// Free, but a hint of their cancelled request is still in the queue: slot, sequence, ticket.
    hinted: Vec<(u16, u32, u64)>,
    /// A worker still runs the request of a client that left (or of a router before this one).
    orphans: Vec<Orphan>,
    /// A worker broke the rules with them, or they were orphans at a moment when one did.
    quarantined: Vec<(u16, u32)>,
    /// What was found wrong with a slot in quarantine or with the queue, until the workers have been replaced.
    broken: Option<Violation>,
    pub(crate) living: Roster,
    pub(crate) rounds: Rounds,
    /// The ticket that no worker gets past.
    stuck: Suspicion<u64>,
    /// Where the queue's head was at the end of the last round.
    last_head: u64,
}

/// The slot of a request whose client has left.
#[derive(Debug)]
struct Orphan {
    slot: u16,
    sequence: u32,
    /// A former router submitted it: its worker may have died when nobody was there to hear of it.
    inherited: bool,
    /// It was claimed in this name, and nobody of this name lives.
    stranger: Suspicion<WorkerId>,
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

/// The rule that is broken when nobody of a claim's name lives.
pub(crate) const NO_SUCH_WORKER: &str = "a request was claimed in the name of a worker that does not live";

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
        let mut books = Books::new(geometry.threads);
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
                books.orphans.push(Orphan { slot, sequence, inherited: true, stranger: Suspicion::none() });
            } else {
                words.state().store(pack(sequence, SlotState::Free), Ordering::Release);
                books.free.push((slot, sequence));
            }
        }
        Ok(Arc::new(RouterEnd { view, tail: tail.into(), cancelled: 0.into(), books: Mutex::new(books) }))
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
        let flags = if complete && taken == body.len() { flags::BODY_END } else { 0 };
        words.flags().store(flags, Ordering::Relaxed);
        words.state().store(pack(sequence, SlotState::Submitted), Ordering::Release);

        let ticket = self.push(slot, sequence);
        Ok(Exchange::new(
            Arc::clone(self),
            Submitted { slot, sequence, ticket, thread, flags, body_written: taken as u64 },
        ))
    }

    /// How many workers say that they have nothing to do, and how many requests wait for a worker. Both may be lies.
    pub fn demand(&self) -> (u32, u64) {
        (self.view.idle().count(), self.requests_waiting())
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

    /// Gives back the slots whose clients left and whose workers have finished since, and wakes workers if requests wait:
    /// what a killed or hostile worker spoiled is mended here. Cheap; call it some times a second in each thread. How many
    /// requests of clients that left have been finished since.
    ///
    /// # Errors
    /// When a worker broke the submission queue, or a slot that no exchange owns (it is set aside): again and again, until
    /// [`RouterEnd::release_quarantined`].
    pub fn sweep(&self, thread: u16, now: Instant) -> Result<usize, Violation> {
        let waiting = self.waiting();
        let mut books = self.lock();
        let round_is_over = books.rounds.sweep(thread, now);
        let finished = self.collect_orphans(&mut books, |_| false);
        self.collect_hinted(&mut books);
        if waiting.is_ok() {
            self.check_queue(&mut books);
        }
        if round_is_over {
            books.quarantined.iter().for_each(|(slot, _)| self.dismiss(*slot));
            self.check_free(&mut books);
            self.wake_all_if_nobody_takes(&mut books);
        }
        let broken = books.broken;
        drop(books);
        self.wake_if_requests_wait();
        broken.map_or(waiting.map(|_| finished), Err)
    }

    /// The thread has ended: it sweeps no more.
    pub fn leave(&self, thread: u16) {
        self.lock().rounds.leave(thread);
    }

    /// A worker is about to be started: from now on it may claim requests.
    pub fn worker_started(&self, worker: WorkerId) {
        self.lock().living.born(worker);
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.view.layout.geometry.slots.into()
    }

    /// How many workers live.
    pub fn living_workers(&self) -> usize {
        self.lock().living.places().count()
    }

    /// A worker is dead: gives back the slots of its orphaned requests. Exchanges find out by themselves: see
    /// [`Exchange::worker_died`].
    pub fn worker_died(&self, worker: WorkerId) {
        let mut books = self.lock();
        books.living.died(worker);
        self.collect_orphans(&mut books, |owner| owner == worker);
        drop(books);
        self.wake_if_requests_wait();
    }

    /// All workers that ran when the rules were broken are dead: gives back the slots that were set aside, and empties
    /// the submission queue, for they may have written there too. Call [`Exchange::resubmit_if_stranded`] on every
    /// exchange after this.
    pub fn release_quarantined(&self) {
        let mut books = self.lock();
        let books = &mut *books;
        self.view.queue().mend(&self.tail);
        books.broken = None;
        for (slot, sequence) in books.quarantined.drain(..) {
            self.view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
            books.free.push((slot, sequence));
        }
    }

    /// How many slots are free now. All of them, when nothing is under way.
    pub fn free_slots(&self) -> usize {
        let mut books = self.lock();
        self.collect_hinted(&mut books);
        books.free.len()
    }

    /// How many slots hold a request that waits, or that a worker runs.
    pub fn slots_in_use(&self) -> usize {
        let mut books = self.lock();
        self.collect_hinted(&mut books);
        self.slots().saturating_sub(books.free.len() + books.hinted.len())
    }

    /// How many hints are in the queue, as far as it can be believed: those of requests that were taken back, too.
    pub fn queued(&self) -> u64 {
        self.waiting().unwrap_or(0)
    }

    /// How many requests wait for a worker, as far as the queue can be believed.
    pub fn requests_waiting(&self) -> u64 {
        let hints = self.queued();
        let cancelled = self.cancelled.load(Ordering::Relaxed);
        if cancelled < hints || hints == 0 {
            return hints.saturating_sub(cancelled);
        }
        // Workers have passed some of them since.
        let mut books = self.lock();
        self.collect_hinted(&mut books);
        self.view.queue().waiting(&self.tail).unwrap_or(0).saturating_sub(books.hinted.len() as u64)
    }

    fn waiting(&self) -> Result<u64, Violation> {
        let waiting = || self.view.queue().waiting(&self.tail);
        waiting().or_else(|_| {
            // Perhaps another thread mends the queue at this moment: it holds the lock meanwhile.
            let _books = self.lock();
            waiting().map_err(|_| Violation("the head of the submission queue is out of range"))
        })
    }

    pub(crate) fn push(&self, slot: u16, sequence: u32) -> u64 {
        let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
        self.view.queue().publish(ticket, Hint { slot, sequence: sequence as u16 });
        self.view.wake_a_worker();
        ticket
    }

    /// Whether the ticket has been taken, or skipped.
    pub(crate) fn is_taken(&self, ticket: u64) -> bool {
        self.view.queue().is_taken(ticket)
    }

    /// The slot is free, and its hint still in the queue.
    pub(crate) fn taken_back(&self, slot: u16, sequence: u32, ticket: u64) {
        let mut books = self.lock();
        books.hinted.push((slot, sequence, ticket));
        self.cancelled.store(books.hinted.len() as u64, Ordering::Relaxed);
    }

    /// The slot is free again, whatever its word says.
    pub(crate) fn release(&self, slot: u16, sequence: u32) {
        self.view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
        self.lock().free.push((slot, sequence));
    }

    /// A worker runs a request whose client has left: it learns that nobody listens.
    pub(crate) fn adopt(&self, slot: u16, sequence: u32) {
        self.dismiss(slot);
        self.lock().orphans.push(Orphan { slot, sequence, inherited: false, stranger: Suspicion::none() });
    }

    /// Sets a slot aside, and the slots of clients that left with it: whoever owns them can't be believed either.
    pub(crate) fn quarantine(&self, slot: u16, sequence: u32) {
        let mut books = self.lock();
        let Books { orphans, quarantined, broken, .. } = &mut *books;
        quarantined.extend(orphans.drain(..).map(|orphan| (orphan.slot, orphan.sequence)));
        quarantined.push((slot, sequence));
        broken.get_or_insert(Violation("a slot waits for the workers to be replaced"));
        // If an honest worker runs it, it shall not wait for room in the ring.
        self.dismiss(slot);
    }

    /// Tells whoever works on the slot that nobody listens.
    fn dismiss(&self, slot: u16) {
        let words = self.view.slot(slot);
        words.flags().fetch_or(flags::CLIENT_GONE, Ordering::SeqCst);
        idle::ring(words.doorbell());
    }

    fn take_free_slot(&self) -> Option<(u16, u32)> {
        let mut books = self.lock();
        if books.free.is_empty() {
            self.collect_hinted(&mut books);
        }
        books.free.pop()
    }

    fn collect_hinted(&self, books: &mut Books) {
        let Books { free, hinted, .. } = books;
        hinted.retain(|(slot, sequence, ticket)| {
            let taken = self.is_taken(*ticket);
            if taken {
                free.push((*slot, *sequence));
            }
            !taken
        });
        self.cancelled.store(hinted.len() as u64, Ordering::Relaxed);
    }

    fn collect_orphans(&self, books: &mut Books, is_dead: impl Fn(WorkerId) -> bool) -> usize {
        let Books { free, orphans, quarantined, broken, living, rounds, .. } = books;
        let mut finished = 0;
        orphans.retain_mut(|orphan| {
            let Orphan { slot, sequence, inherited, .. } = *orphan;
            let words = self.view.slot(slot);
            let ended = match unpack(words.state().load(Ordering::Acquire)) {
                (seen, Some(SlotState::Done(_))) if seen == sequence => Ok(true),
                (seen, Some(SlotState::Claimed(worker))) if seen == sequence => {
                    let stranger = (!living.lives(worker)).then_some(worker);
                    if is_dead(worker) {
                        Ok(true)
                    } else if orphan.stranger.is_proven(stranger, rounds.number()) {
                        if inherited { Ok(true) } else { Err(Violation(NO_SUCH_WORKER)) }
                    } else if words.flags().load(Ordering::Relaxed) & flags::CLIENT_GONE == 0 {
                        Err(Violation("a worker was told that a client is back"))
                    } else {
                        Ok(false)
                    }
                }
                _ => Err(Violation("the slot of a request whose client has left was overwritten")),
            };
            match ended {
                Ok(false) => return true,
                Ok(true) => {
                    words.state().store(pack(sequence, SlotState::Free), Ordering::Release);
                    free.push((slot, sequence));
                    finished += 1;
                }
                Err(violation) => {
                    self.dismiss(slot);
                    quarantined.push((slot, sequence));
                    *broken = Some(violation);
                }
            }
            false
        });
        finished
    }

    /// Finds a cell that stops the queue. [`SubmissionQueue::mend`] can't run meanwhile: it needs the books.
    ///
    /// [`SubmissionQueue::mend`]: crate::submission::SubmissionQueue::mend
    fn check_queue(&self, books: &mut Books) {
        let stuck = self.view.queue().stuck_at(&self.tail);
        if books.stuck.is_proven(stuck, books.rounds.number()) {
            books.broken = Some(Violation("no worker gets past a cell of the submission queue"));
        }
    }

    /// Finds free slots that were made to look as if a request were in them: a worker that ran it would wait for ever.
    fn check_free(&self, books: &mut Books) {
        let Books { free, hinted, quarantined, broken, .. } = books;
        let mut is_free = |slot: u16, sequence: u32| {
            let is_free = self.view.slot(slot).state().load(Ordering::Relaxed) == pack(sequence, SlotState::Free);
            if !is_free {
                self.dismiss(slot);
                quarantined.push((slot, sequence));
                *broken = Some(Violation("a free slot was overwritten"));
            }
            is_free
        };
        free.retain(|(slot, sequence)| is_free(*slot, *sequence));
        hinted.retain(|(slot, sequence, _)| is_free(*slot, *sequence));
    }

    /// Rings for all workers when requests wait and none was taken for a whole round. Mostly all are busy then, and it is
    /// for nothing; but those that a worker removed from the idle set would sleep for ever.
    fn wake_all_if_nobody_takes(&self, books: &mut Books) {
        let queue = self.view.queue();
        let head = queue.head.load(Ordering::Acquire);
        if head == books.last_head && queue.has_hint() {
            books.living.places().for_each(|place| idle::ring(self.view.doorbell(place)));
        }
        books.last_head = head;
    }

    fn wake_if_requests_wait(&self) {
        if self.view.queue().has_hint() {
            self.view.wake_a_worker();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Books> {
        // Nothing panics while the lock is held; if it did, the lists would still be whole.
        self.books.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

// === impl Books ===

impl Books {
    fn new(threads: u16) -> Books {
        Books {
            free: Vec::new(),
            hinted: Vec::new(),
            orphans: Vec::new(),
            quarantined: Vec::new(),
            broken: None,
            living: Roster::default(),
            rounds: Rounds::new(threads),
            stuck: Suspicion::none(),
            last_head: 0,
        }
    }
}
