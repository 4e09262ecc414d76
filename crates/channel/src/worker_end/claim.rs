//! A request that this worker runs: its head and body, and its response.

use super::CHECK_AGAIN;
use super::own::Own;
use crate::memory::doorbell;
use crate::memory::layout::{
    BODY_RING_BYTES, REQUEST_HEAD_BYTES, RESPONSE_RING_BYTES, STACK_BYTES, STACK_TIME_SHIFT, flags,
};
use crate::memory::ring::{readable, writable};
use crate::slot_state::{SlotState, pack};
use crate::sync::{Ordering, fence};
use crate::view::SlotView;
use crate::violation::Violation;
use crate::worker_record::account::{monotonic, nanoseconds};
use rustix::io::Errno;
use std::time::Duration;

/// A request that this worker runs. It must be finished: a claim that is only dropped leaves the slot claimed.
#[derive(Debug)]
pub struct Claim<'w> {
    own: &'w Own,
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
    /// When PHP began to run it, by [`monotonic`].
    began: Option<Duration>,
    /// The processor time that it took.
    cpu: Option<Duration>,
    /// How long it occupied the worker.
    occupied: Option<Duration>,
    /// The word about its stack.
    stack: u64,
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

// === impl Claim ===

impl<'w> Claim<'w> {
    /// The request that this worker has claimed. Its progress is reported to this thread of the router.
    pub(super) fn new(own: &'w Own, slot: u16, sequence: u32, thread: u16) -> Claim<'w> {
        Claim {
            own,
            slot,
            sequence,
            thread,
            written: 0,
            published: 0,
            notified: 0,
            body_read: 0,
            began: None,
            cpu: None,
            occupied: None,
            stack: 0,
        }
    }

    /// PHP begins to run the request at this time, by [`monotonic`].
    pub fn set_began(&mut self, began: Duration) {
        self.began = Some(began);
    }

    /// When PHP began to run the request, by [`monotonic`].
    pub fn began(&self) -> Option<Duration> {
        self.began
    }

    /// The processor time that the request took, and how long it kept the worker from others: all the time if it slept, or else
    /// the processor time.
    pub fn set_times(&mut self, cpu: Duration, occupied: Duration) {
        (self.cpu, self.occupied) = (Some(cpu), Some(occupied));
    }

    /// PHP's stack after this time, because the request is slow. The head of the request is read: the stack takes its end.
    pub fn set_stack(&mut self, stack: &[u8], after: Duration) {
        let stack = &stack[..stack.len().min(STACK_BYTES)];
        self.own.channel.view.slot(self.slot).write_stack(stack);
        let milliseconds = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).min(u64::from(u32::MAX));
        self.stack = milliseconds << STACK_TIME_SHIFT | stack.len() as u64;
    }

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

    /// Whether the request has taken longer than allowed: the router has answered it.
    pub fn timed_out(&self) -> bool {
        self.slot_view().flags().load(Ordering::Relaxed) & flags::TIMED_OUT != 0
    }

    /// There will be no response, or no rest of it: the router answers with an error, or cuts the response off. This worker
    /// does not access the slot after this.
    pub fn abandon(self) {
        self.slot_view().abandoned().store(1, Ordering::Relaxed);
        self.finish();
    }

    /// The response is complete. This worker does not access the slot after this.
    pub fn finish(self) {
        let words = self.slot_view();
        // For numbers only: the state is stored after these.
        let ran = self.began.map(|began| monotonic().saturating_sub(began));
        words.began().store(self.began.map_or(0, nanoseconds), Ordering::Relaxed);
        words.ran().store(ran.map_or(0, nanoseconds), Ordering::Relaxed);
        words.stack().store(self.stack, Ordering::Relaxed);
        let plus_one = |time: Option<Duration>| time.map_or(0, |time| nanoseconds(time).saturating_add(1));
        words.cpu().store(plus_one(self.cpu), Ordering::Relaxed);
        words.occupied().store(plus_one(self.occupied), Ordering::Relaxed);
        words.response_written().store(self.written, Ordering::Release);
        // Fails only if another worker wrote the word; the router detects that, too.
        let _ = words.state().compare_exchange(
            pack(self.sequence, SlotState::Claimed(self.own.me)),
            pack(self.sequence, SlotState::Done(self.own.me)),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.notify_router();
    }

    fn slot_view(&self) -> SlotView<'w> {
        self.own.channel.view.slot(self.slot)
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
        if self.own.channel.view.mailbox(self.thread).post(self.slot) {
            let written = rustix::io::write(&self.own.channel.bells[usize::from(self.thread)], &1u64.to_ne_bytes());
            // EAGAIN means that the counter is full: the thread will wake anyway.
            if written.is_err_and(|error| error != Errno::AGAIN && error != Errno::INTR) {
                self.own.cannot_notify.store(true, Ordering::Relaxed);
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
