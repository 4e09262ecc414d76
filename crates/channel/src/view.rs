//! The typed view of a channel's memory that all ends share.

use crate::lock_free::idle::IdleSet;
use crate::lock_free::mailbox::Mailbox;
use crate::lock_free::submission::SubmissionQueue;
use crate::memory::doorbell;
use crate::memory::layout::{
    BODY_RING_BYTES, Geometry, Layout, MAX_WORKERS, REQUEST_HEAD_BYTES, RESPONSE_RING_BYTES, STACK_BYTES, control,
    flags, opcache, worker,
};
use crate::memory::mapping::Mapping;
use crate::memory::ring::Ring;
use crate::memory::word_copy;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::worker_record::account::AccountWords;
use crate::worker_record::opcache::OpcacheWords;
use crate::worker_record::recycle::Turn;
use std::io;
use std::os::fd::AsFd;

/// A mapped channel.
#[derive(Debug)]
pub(crate) struct View {
    memory: Mapping,
    pub layout: Layout,
}

/// One slot's words, head and rings.
pub(crate) struct SlotView<'m> {
    memory: &'m Mapping,
    /// The offset of the slot's control words.
    start: usize,
    /// The offsets of its head and its rings.
    head: usize,
    body: usize,
    response: usize,
}

// === impl View ===

impl View {
    pub fn map(memfd: impl AsFd, geometry: Geometry) -> io::Result<View> {
        if !geometry.is_valid() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a channel of an impossible geometry"));
        }
        let layout = Layout::new(geometry);
        Ok(View { memory: Mapping::map(memfd, layout.total_bytes)?, layout })
    }

    pub fn queue(&self) -> SubmissionQueue<'_> {
        SubmissionQueue {
            head: self.memory.u64(self.layout.queue_head()),
            cells: self.memory.u64s(self.layout.queue_cells(), 2 * self.layout.geometry.slots as usize),
        }
    }

    pub fn idle(&self) -> IdleSet<'_> {
        IdleSet { bits: self.memory.u64s(self.layout.idle_bits(), MAX_WORKERS as usize / 64) }
    }

    pub fn mailbox(&self, thread: u16) -> Mailbox<'_> {
        Mailbox {
            sleeping: self.memory.u32(self.layout.mailbox_sleeping(thread)),
            bits: self.memory.u64s(self.layout.mailbox_bits(thread), self.layout.geometry.slots as usize / 64),
        }
    }

    pub fn doorbell(&self, index: u16) -> &AtomicU32 {
        self.memory.u32(self.layout.worker(index) + worker::DOORBELL)
    }

    /// `incarnation + 1` of the worker that is to stop.
    pub fn stop_word(&self, index: u16) -> &AtomicU32 {
        self.memory.u32(self.layout.worker(index) + worker::STOP)
    }

    pub fn account(&self, index: u16) -> AccountWords<'_> {
        let start = self.layout.worker(index) + worker::ACCOUNT;
        AccountWords::new(self.memory.u64s(start, (worker::BYTES - worker::ACCOUNT) / 8))
    }

    /// The numbers of opcache.
    pub fn opcache(&self) -> OpcacheWords<'_> {
        OpcacheWords::new(self.memory.u64s(self.layout.opcache(), opcache::BYTES / 8))
    }

    /// Not zero when all workers are to stop.
    pub fn drain_word(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.drain_word())
    }

    pub fn recycle(&self) -> Turn<'_> {
        Turn::of(self.memory.u64(self.layout.recycle_word()))
    }

    pub fn slot(&self, slot: u16) -> SlotView<'_> {
        SlotView {
            memory: &self.memory,
            start: self.layout.control(slot),
            head: self.layout.request_head(slot),
            body: self.layout.body_ring(slot),
            response: self.layout.response_ring(slot),
        }
    }

    /// The doorbell of this worker's sampler.
    pub fn sampler_bell(&self, index: u16) -> &AtomicU32 {
        self.memory.u32(self.layout.worker(index) + worker::SAMPLER)
    }

    /// The start time, in nanoseconds, of the request that this worker is to end.
    pub fn end_word(&self, index: u16) -> &AtomicU64 {
        self.memory.u64(self.layout.worker(index) + worker::END)
    }

    /// Samples per second of all stacks, for a profile; 0 turns them off.
    pub fn profile_rate(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.profile_rate())
    }

    /// The number of the recording of the workers' memory; 0 without one.
    pub fn memory_recording(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.memory_recording())
    }

    /// How many requests may wait before a worker that takes one wakes another worker.
    pub fn wake_threshold(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.wake_threshold())
    }

    /// Wakes a sleeping worker; `false` if no worker sleeps.
    pub fn wake_a_worker(&self) -> bool {
        let sleeper = self.idle().wake_one().filter(|index| *index < MAX_WORKERS);
        sleeper.inspect(|index| doorbell::ring(self.doorbell(*index))).is_some()
    }

    /// Notifies the worker that runs the slot's request that its client is gone.
    pub fn notify_client_gone(&self, slot: u16) {
        let words = self.slot(slot);
        words.flags().fetch_or(flags::CLIENT_GONE, Ordering::SeqCst);
        doorbell::ring(words.doorbell());
    }
}

// === impl SlotView ===

impl<'m> SlotView<'m> {
    pub fn state(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::STATE)
    }
    pub fn head_length(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::HEAD_LENGTH)
    }
    pub fn thread(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::THREAD)
    }
    pub fn body_written(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::BODY_WRITTEN)
    }
    pub fn flags(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::FLAGS)
    }
    pub fn doorbell(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::DOORBELL)
    }
    pub fn response_read(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::RESPONSE_READ)
    }
    pub fn response_written(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::RESPONSE_WRITTEN)
    }
    pub fn body_read(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::BODY_READ)
    }
    pub fn waiting(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::WAITING)
    }
    /// Not zero when the worker has given the request up.
    pub fn abandoned(&self) -> &'m AtomicU32 {
        self.memory.u32(self.start + control::ABANDONED)
    }
    pub fn began(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::BEGAN)
    }
    pub fn ran(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::RAN)
    }
    pub fn cpu(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::CPU)
    }
    pub fn occupied(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::OCCUPIED)
    }
    pub fn stack(&self) -> &'m AtomicU64 {
        self.memory.u64(self.start + control::STACK)
    }
    pub fn body(&self) -> Ring<'m> {
        Ring::new(self.memory.u64s(self.body, BODY_RING_BYTES / 8))
    }
    pub fn response(&self) -> Ring<'m> {
        Ring::new(self.memory.u64s(self.response, RESPONSE_RING_BYTES / 8))
    }

    /// Writes a request's head, of at most [`REQUEST_HEAD_BYTES`].
    pub fn write_head(&self, head: &[u8]) {
        word_copy::copy_in(self.head_words(), 0, head);
    }

    /// Appends the first `len` bytes of the head to `out`.
    pub fn read_head(&self, len: usize, out: &mut Vec<u8>) {
        word_copy::append(self.head_words(), 0, len, out);
    }

    /// Writes the stack of a slow request, of at most [`STACK_BYTES`].
    pub fn write_stack(&self, stack: &[u8]) {
        word_copy::copy_in(self.head_words(), REQUEST_HEAD_BYTES - STACK_BYTES, stack);
    }

    /// Appends the first `len` bytes of that stack to `out`.
    pub fn read_stack(&self, len: usize, out: &mut Vec<u8>) {
        word_copy::append(self.head_words(), REQUEST_HEAD_BYTES - STACK_BYTES, len, out);
    }

    fn head_words(&self) -> &'m [AtomicU64] {
        self.memory.u64s(self.head, REQUEST_HEAD_BYTES / 8)
    }
}
