//! A worker's end of a channel: claims requests, reads their bodies, writes their responses.
//!
//! It sleeps on its own doorbell while there is nothing to do, and on the slot's doorbell while the ring is full (or a body
//! has not arrived). It validates what it reads, because another worker may have written it: after a [`Violation`] this
//! process should exit.

use crate::memory::doorbell;
use crate::memory::layout::{BODY_RING_BYTES, Geometry, REQUEST_HEAD_BYTES, RESPONSE_RING_BYTES, flags};
use crate::memory::ring::{readable, writable};
use crate::slot_state::{SlotState, WorkerId, pack, unpack};
use crate::sync::{Ordering, fence};
use crate::view::{SlotView, View};
use crate::violation::Violation;
use crate::worker_record::account::Ledger;
use crate::worker_record::sampling::SamplerWords;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The channel, which the prototype maps once for all the workers that it forks.
#[derive(Clone, Debug)]
pub struct WorkerChannel {
    view: Arc<View>,
    bells: Arc<Vec<OwnedFd>>,
}

/// One worker's end.
#[derive(Debug)]
pub struct WorkerEnd {
    channel: WorkerChannel,
    me: WorkerId,
    /// The eventfds of the router are closed.
    cannot_notify: AtomicBool,
}

/// The next step of a worker.
#[derive(Debug)]
pub enum Next<'w> {
    /// Run this request.
    Run(Claim<'w>),
    /// Exit: this worker, or all workers, were ordered to stop.
    Stop,
}

/// A request that this worker runs. It must be finished: a claim that is only dropped leaves the slot claimed.
#[derive(Debug)]
pub struct Claim<'w> {
    end: &'w WorkerEnd,
    slot: u16,
    sequence: u32,
    thread: u16,
    /// The bytes of the response in the ring.
    written: u64,
    /// The bytes that the router can see.
    published: u64,
    /// The bytes that the router was notified of.
    notified: u64,
    body_read: u64,
}

/// The client is gone: the router discards the response.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientGone;

/// Why a request's body ends early.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The rest will not arrive, and no client waits for the response. The part must not be used as the whole.
    Incomplete,
    /// The router's position is impossible.
    Broken(Violation),
}

/// The bytes after which the router is notified, so that both work on a long response at the same time.
const NOTIFY_BYTES: u64 = RESPONSE_RING_BYTES as u64 / 2;
/// The bytes that the router can see without a notification: it looks some times per second, for a script that writes
/// slowly.
const PUBLISH_BYTES: u64 = 32 * 1024;
/// A length of a response that the router treats as a violation: the worker reports one that it found with it.
const BROKEN: u64 = u64::MAX;
/// The longest sleep of a worker before it checks again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

// === impl WorkerChannel ===

impl WorkerChannel {
    /// Maps the channel. `bells` are the eventfds of the router's threads, in their order.
    ///
    /// # Errors
    /// When the memory is not a channel of this geometry, or the number of bells is not the number of threads.
    pub fn attach(memfd: impl AsFd, geometry: Geometry, bells: Vec<OwnedFd>) -> io::Result<WorkerChannel> {
        if bells.len() != usize::from(geometry.threads) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not one eventfd for each router thread"));
        }
        Ok(WorkerChannel { view: Arc::new(View::map(memfd, geometry)?), bells: Arc::new(bells) })
    }

    /// The end of a worker of this name.
    pub fn worker(&self, me: WorkerId) -> WorkerEnd {
        WorkerEnd { channel: self.clone(), me, cannot_notify: AtomicBool::new(false) }
    }
}

// === impl WorkerEnd ===

impl WorkerEnd {
    /// Waits for a request and claims it. `before_sleep` is called before the worker sleeps. While it returns `true` the
    /// worker wakes after a second to call it again: there is something else to watch, such as children of PHP.
    pub fn next(&self, mut before_sleep: impl FnMut() -> bool) -> Next<'_> {
        let view = &*self.channel.view;
        loop {
            if self.must_stop() {
                break;
            }
            if let Some(claim) = self.claim() {
                return Next::Run(claim);
            }
            let timeout = before_sleep().then_some(CHECK_AGAIN);
            let bell = view.doorbell(self.me.index);
            let seen = bell.load(Ordering::Acquire);
            view.idle().enter(self.me.index);
            if !view.queue().has_hint() && !self.must_stop() {
                doorbell::wait(bell, seen, timeout);
            }
            view.idle().leave(self.me.index);
        }
        // The wake-up of this worker may have been for a request: pass it on.
        if view.queue().has_hint() {
            view.wake_a_worker();
        }
        Next::Stop
    }

    /// Opens this worker's account: once, before the first request. From now on other workers may exit for replacements.
    pub fn open_ledger(&self) -> Ledger<'_> {
        self.channel.view.recycle().give_back(self.me);
        Ledger::open(self.channel.view.account(self.me.index), self.me)
    }

    /// This worker's index.
    pub fn index(&self) -> u16 {
        self.me.index
    }

    /// Whether this worker can't notify the router, because a script closed its descriptors: it should exit. (The router
    /// checks the slots of a dead worker.)
    pub fn is_cut_off(&self) -> bool {
        self.cannot_notify.load(Ordering::Relaxed)
    }

    /// Takes the turn to exit for a replacement. `false` when another worker has it.
    pub fn may_recycle(&self, now: Duration) -> bool {
        self.channel.view.recycle().take(self.me, now)
    }

    /// The orders to this worker's sampler. Call it once, before the first request: orders to the former worker with this
    /// index are dropped.
    pub fn sampler_words(&self) -> SamplerWords<'_> {
        let view = &*self.channel.view;
        let index = self.me.index;
        view.end_word(index).store(0, Ordering::SeqCst);
        SamplerWords { bell: view.sampler_bell(index), rate: view.profile_rate(), end: view.end_word(index) }
    }

    /// The number of the recording of memory to which each worker adds a record after each request; 0 without one. Any
    /// worker of the application can write this word.
    pub fn memory_recording(&self) -> u32 {
        self.channel.view.memory_recording().load(Ordering::Relaxed)
    }

    /// Whether this worker was ordered to finish its request and exit.
    pub fn must_stop(&self) -> bool {
        let view = &*self.channel.view;
        view.drain_word().load(Ordering::SeqCst) != 0
            || view.stop_word(self.me.index).load(Ordering::SeqCst) == u32::from(self.me.incarnation) + 1
    }

    fn claim(&self) -> Option<Claim<'_>> {
        let view = &*self.channel.view;
        let queue = view.queue();
        while let Some(hint) = queue.take() {
            if hint.slot >= view.layout.geometry.slots {
                continue;
            }
            let words = view.slot(hint.slot);
            let word = words.state().load(Ordering::Acquire);
            let (sequence, state) = unpack(word);
            if state != Some(SlotState::Submitted) || sequence as u16 != hint.sequence {
                continue;
            }
            let claimed = pack(sequence, SlotState::Claimed(self.me));
            if words.state().compare_exchange(word, claimed, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if queue.has_hint() {
                view.wake_a_worker();
            }
            let thread = words.thread().load(Ordering::Relaxed).min(u32::from(view.layout.geometry.threads) - 1) as u16;
            return Some(Claim {
                end: self,
                slot: hint.slot,
                sequence,
                thread,
                written: 0,
                published: 0,
                notified: 0,
                body_read: 0,
            });
        }
        None
    }
}

// === impl Claim ===

impl<'w> Claim<'w> {
    /// The name of the request: its slot, and the slot's sequence number.
    pub fn name(&self) -> (u16, u32) {
        (self.slot, self.sequence)
    }

    /// Replaces the contents of `head` by the request's head.
    ///
    /// # Errors
    /// When its length is impossible.
    pub fn head(&self, head: &mut Vec<u8>) -> Result<(), Violation> {
        let words = self.slot_view();
        let len = words.head_length().load(Ordering::Relaxed) as usize;
        if len > REQUEST_HEAD_BYTES {
            return Err(Violation("the length of a request's head is impossible"));
        }
        head.clear();
        words.read_head(len, head);
        Ok(())
    }

    /// Fills `out` with the next part of the request's body, and waits for it if necessary. 0 means the end.
    ///
    /// # Errors
    /// When the rest will not arrive, or the router's position is impossible.
    pub fn read_body(&mut self, out: &mut [u8]) -> Result<usize, BodyError> {
        loop {
            let words = self.slot_view();
            // The end is published after the bytes: load it first.
            let flags = words.flags().load(Ordering::Acquire);
            let written = words.body_written().load(Ordering::Acquire);
            let waiting = readable(BODY_RING_BYTES, written, self.body_read)
                .map_err(|_| BodyError::Broken(Violation("the length of a request's body is impossible")))?;
            let len = waiting.min(out.len());
            if len > 0 {
                words.body().read_to(self.body_read, &mut out[..len]);
                self.body_read += len as u64;
                words.body_read().store(self.body_read, Ordering::Release);
                return Ok(len);
            }
            if out.is_empty() || flags & flags::BODY_END != 0 {
                return Ok(0);
            }
            if flags & (flags::BODY_FAILED | flags::CLIENT_GONE) != 0 {
                return Err(BodyError::Incomplete);
            }
            self.notify_router();
            self.sleep_unless(|words| {
                words.body_written().load(Ordering::SeqCst) != written || words.flags().load(Ordering::SeqCst) != flags
            });
        }
    }

    /// Writes part of the response, and waits for room if necessary. The router is notified of it in portions.
    ///
    /// # Errors
    /// When the client is gone: the router discards the whole response.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
        while !bytes.is_empty() {
            let words = self.slot_view();
            if self.client_gone() || self.written == BROKEN {
                return Err(ClientGone);
            }
            let read = words.response_read().load(Ordering::Acquire);
            let Ok(room) = writable(RESPONSE_RING_BYTES, self.written, read) else {
                // Another worker wrote the position. A part of a response must not pass for the whole.
                self.written = BROKEN;
                self.publish_and_notify();
                return Err(ClientGone);
            };
            if room == 0 {
                self.publish_and_notify();
                self.sleep_unless(|words| {
                    words.response_read().load(Ordering::SeqCst) != read
                        || words.flags().load(Ordering::SeqCst) & flags::CLIENT_GONE != 0
                });
                continue;
            }
            let len = room.min(bytes.len());
            words.response().write(self.written, &bytes[..len]);
            self.written += len as u64;
            bytes = &bytes[len..];
            if self.written - self.notified >= NOTIFY_BYTES {
                self.publish_and_notify();
            } else if self.written - self.published >= PUBLISH_BYTES {
                self.publish();
            }
        }
        Ok(())
    }

    /// Publishes what has been written, so that the router can send it.
    pub fn flush(&mut self) {
        if self.written != self.notified {
            self.publish_and_notify();
        }
    }

    /// Whether the client is gone: the router discards the response.
    pub fn client_gone(&self) -> bool {
        self.slot_view().flags().load(Ordering::Relaxed) & flags::CLIENT_GONE != 0
    }

    /// The response is complete. This worker does not access the slot after this.
    pub fn finish(self) {
        let words = self.slot_view();
        words.response_written().store(self.written, Ordering::Release);
        // Fails only if another worker wrote the word; the router detects that, too.
        let _ = words.state().compare_exchange(
            pack(self.sequence, SlotState::Claimed(self.end.me)),
            pack(self.sequence, SlotState::Done(self.end.me)),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.notify_router();
    }

    fn slot_view(&self) -> SlotView<'w> {
        self.end.channel.view.slot(self.slot)
    }

    fn publish(&mut self) {
        self.published = self.written;
        self.slot_view().response_written().store(self.written, Ordering::Release);
    }

    fn publish_and_notify(&mut self) {
        self.publish();
        self.notified = self.written;
        self.notify_router();
    }

    fn notify_router(&self) {
        if self.end.channel.view.mailbox(self.thread).post(self.slot) {
            let written = rustix::io::write(&self.end.channel.bells[usize::from(self.thread)], &1u64.to_ne_bytes());
            // EAGAIN means that the counter is full: the thread will wake anyway.
            if written.is_err_and(|error| error != Errno::AGAIN && error != Errno::INTR) {
                self.end.cannot_notify.store(true, Ordering::Relaxed);
            }
        }
    }

    fn sleep_unless(&self, ready: impl Fn(&SlotView<'_>) -> bool) {
        let words = self.slot_view();
        let bell = words.doorbell();
        let seen = bell.load(Ordering::Acquire);
        words.waiting().store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready(&words) {
            doorbell::wait(bell, seen, Some(CHECK_AGAIN));
        }
        words.waiting().store(0, Ordering::Relaxed);
    }
}
