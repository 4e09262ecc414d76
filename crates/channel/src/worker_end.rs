//! A worker's end of a channel: claims requests, reads their bodies, writes their responses.
//!
//! It sleeps on its own doorbell while there is nothing to do, and on the slot's while the ring is full (or a body has
//! not arrived). It validates what it reads too, since another worker may have written it: a [`Violation`] here means
//! that this process should end.

use crate::account::Ledger;
use crate::futex;
use crate::layout::{Geometry, REQUEST_HEAD_BYTES, flags};
use crate::ring::{readable, writable};
use crate::state::{SlotState, Violation, WorkerId, pack, unpack};
use crate::sync::{Ordering, fence};
use crate::view::View;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A channel as the prototype maps it, once, for all the workers that it forks.
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
    /// The router cannot be woken any more.
    cut_off: AtomicBool,
}

/// What a worker does next.
#[derive(Debug)]
pub enum Next<'w> {
    /// Run this request.
    Run(Claim<'w>),
    /// Exit: this worker, or all of them, were asked to stop.
    Stop,
}

/// A request that this worker runs. It must be finished; dropping it leaves the slot claimed.
#[derive(Debug)]
pub struct Claim<'w> {
    end: &'w WorkerEnd,
    slot: u16,
    sequence: u32,
    thread: u16,
    written: u64,
    published: u64,
    body_read: u64,
}

/// Nobody reads the response any more.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientGone;

/// Why there is no more of a request's body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The rest will never come, and nobody waits for the response. What came must not be taken for the whole.
    Incomplete,
    /// The router's position is impossible.
    Broken(Violation),
}

/// How much may be written before the router is told, so that both work at the same time on a long response.
const PUBLISH_BYTES: u64 = 32 * 1024;
/// A length of a response that the router takes as a violation: the word for one that a worker found itself.
const BROKEN: u64 = u64::MAX;
/// How long a worker sleeps at most before it looks again by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

// === impl WorkerChannel ===

impl WorkerChannel {
    /// Maps the channel. `bells` are the eventfds of the router's threads, in their order.
    ///
    /// # Errors
    /// When the memory is not a channel of this geometry, or there are not as many bells as threads.
    pub fn attach(memfd: impl AsFd, geometry: Geometry, bells: Vec<OwnedFd>) -> io::Result<WorkerChannel> {
        if bells.len() != usize::from(geometry.threads) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not one eventfd for each router thread"));
        }
        Ok(WorkerChannel { view: Arc::new(View::map(memfd, geometry)?), bells: Arc::new(bells) })
    }

    /// The end of a worker of this name.
    pub fn worker(&self, me: WorkerId) -> WorkerEnd {
        WorkerEnd { channel: self.clone(), me, cut_off: AtomicBool::new(false) }
    }
}

// === impl WorkerEnd ===

impl WorkerEnd {
    /// Waits for a request and claims it. `look_after` is called before the worker sleeps, and again after a second while
    /// it answers `true`: for what the worker has to watch besides, such as children of PHP.
    pub fn next(&self, mut look_after: impl FnMut() -> bool) -> Next<'_> {
        let view = &*self.channel.view;
        loop {
            if self.must_stop() {
                break;
            }
            if let Some(claim) = self.claim() {
                return Next::Run(claim);
            }
            let timeout = look_after().then_some(LOOK_AGAIN);
            let doorbell = view.doorbell(self.me.index);
            let seen = doorbell.load(Ordering::Acquire);
            view.idle().enter(self.me.index);
            if !view.queue().has_hint() && !self.must_stop() {
                futex::wait(doorbell, seen, timeout);
            }
            view.idle().leave(self.me.index);
        }
        // A wake-up may have been meant for this worker: pass it on.
        if view.queue().has_hint() {
            view.wake_a_worker();
        }
        Next::Stop
    }

    /// Opens this worker's account. Once, before the first request. Others may end for new ones from now on.
    pub fn open_ledger(&self) -> Ledger<'_> {
        self.channel.view.recycle().give_back(self.me);
        Ledger::open(self.channel.view.account(self.me.index), self.me)
    }

    /// Which of the places this worker has.
    pub fn place(&self) -> u16 {
        self.me.index
    }

    /// Whether the router does not hear what this worker says, because its descriptors were closed: it should end. (The
    /// router looks at what a dead worker left behind.)
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// Whether this worker may end now, for a new one to take its place: no other one is doing so.
    pub fn may_recycle(&self, now: Duration) -> bool {
        self.channel.view.recycle().take(self.me, now)
    }

    pub(crate) fn view(&self) -> &View {
        &self.channel.view
    }

    pub(crate) fn name(&self) -> WorkerId {
        self.me
    }

    /// Whether this worker was asked to finish what it does and go.
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
                body_read: 0,
            });
        }
        None
    }
}

// === impl Claim ===

impl Claim<'_> {
    /// Its slot, and the slot's sequence number.
    pub fn place(&self) -> (u16, u32) {
        (self.slot, self.sequence)
    }

    /// Copies the request's head into `head`, whose former contents are dropped.
    ///
    /// # Errors
    /// When its length is impossible.
    pub fn head(&self, head: &mut Vec<u8>) -> Result<(), Violation> {
        let view = &*self.end.channel.view;
        let words = view.slot(self.slot);
        let len = words.head_length().load(Ordering::Relaxed) as usize;
        if len > REQUEST_HEAD_BYTES {
            return Err(Violation("the length of a request's head is impossible"));
        }
        head.clear();
        view.memory.copy_out(words.head_offset, len, head);
        Ok(())
    }

    /// Fills `out` with what is next of the request's body, waiting for it if need be. 0 means the end.
    ///
    /// # Errors
    /// When the rest will never come, or the router's position is impossible.
    pub fn read_body(&mut self, out: &mut [u8]) -> Result<usize, BodyError> {
        loop {
            let view = &*self.end.channel.view;
            let words = view.slot(self.slot);
            // The end is published after the bytes: read it first.
            let flags = words.flags().load(Ordering::Acquire);
            let written = words.body_written().load(Ordering::Acquire);
            let waiting = readable(words.body.size, written, self.body_read)
                .map_err(|_| BodyError::Broken(Violation("the length of a request's body is impossible")))?;
            let len = waiting.min(out.len());
            if len > 0 {
                words.body.read_to(&view.memory, self.body_read, &mut out[..len]);
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

    /// Writes part of the response, waiting for room if need be. The router learns of it in portions.
    ///
    /// # Errors
    /// When the client is gone: what was written is dropped, and so is all that follows.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
        while !bytes.is_empty() {
            let words = self.end.channel.view.slot(self.slot);
            if self.client_gone() || self.written == BROKEN {
                return Err(ClientGone);
            }
            let read = words.response_read().load(Ordering::Acquire);
            let Ok(room) = writable(words.response.size, self.written, read) else {
                // Another worker wrote it. What was cut off here must not pass for a whole response.
                self.written = BROKEN;
                self.publish();
                return Err(ClientGone);
            };
            if room == 0 {
                self.publish();
                self.sleep_unless(|words| {
                    words.response_read().load(Ordering::SeqCst) != read
                        || words.flags().load(Ordering::SeqCst) & flags::CLIENT_GONE != 0
                });
                continue;
            }
            let len = room.min(bytes.len());
            words.response.write(&self.end.channel.view.memory, self.written, &bytes[..len]);
            self.written += len as u64;
            bytes = &bytes[len..];
            if self.written - self.published >= PUBLISH_BYTES {
                self.publish();
            }
        }
        Ok(())
    }

    /// Lets the router send what has been written.
    pub fn flush(&mut self) {
        if self.written != self.published {
            self.publish();
        }
    }

    /// Whether nobody reads the response any more.
    pub fn client_gone(&self) -> bool {
        self.end.channel.view.slot(self.slot).flags().load(Ordering::Relaxed) & flags::CLIENT_GONE != 0
    }

    /// The response is complete. The slot is not touched after this.
    pub fn finish(self) {
        let words = self.end.channel.view.slot(self.slot);
        words.response_written().store(self.written, Ordering::Release);
        // Fails only if another worker wrote the word; the router will see that too.
        let _ = words.state().compare_exchange(
            pack(self.sequence, SlotState::Claimed(self.end.me)),
            pack(self.sequence, SlotState::Done(self.end.me)),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.notify_router();
    }

    fn publish(&mut self) {
        self.published = self.written;
        self.end.channel.view.slot(self.slot).response_written().store(self.written, Ordering::Release);
        self.notify_router();
    }

    fn notify_router(&self) {
        if self.end.channel.view.mailbox(self.thread).post(self.slot) {
            let written = rustix::io::write(&self.end.channel.bells[usize::from(self.thread)], &1u64.to_ne_bytes());
            // EAGAIN means that the counter is full: the thread will wake anyway.
            if written.is_err_and(|error| error != Errno::AGAIN && error != Errno::INTR) {
                self.end.cut_off.store(true, Ordering::Relaxed);
            }
        }
    }

    fn sleep_unless(&self, ready: impl Fn(&crate::view::SlotView<'_>) -> bool) {
        let words = self.end.channel.view.slot(self.slot);
        let doorbell = words.doorbell();
        let seen = doorbell.load(Ordering::Acquire);
        words.waiting().store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready(&words) {
            futex::wait(doorbell, seen, Some(LOOK_AGAIN));
        }
        words.waiting().store(0, Ordering::Relaxed);
    }
}
