//! The typed view of a channel's memory that both ends share.

use crate::account;
use crate::idle::IdleSet;
use crate::layout::{self, BODY_RING_BYTES, Geometry, Layout, MAX_WORKERS, RESPONSE_RING_BYTES, control, worker};
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::recycle::Turn;
use crate::ring::Ring;
use crate::submission::SubmissionQueue;
use crate::sync::{AtomicU32, AtomicU64};
use std::io;
use std::os::fd::AsFd;

/// A mapped channel.
#[derive(Debug)]
pub(crate) struct View {
    pub memory: Memory,
    pub layout: Layout,
}

/// One slot's words and rings.
pub(crate) struct SlotView<'m> {
    memory: &'m Memory,
    at: usize,
    pub body: Ring,
    pub response: Ring,
    pub head_offset: usize,
}

// === impl View ===

impl View {
    pub fn map(memfd: impl AsFd, geometry: Geometry) -> io::Result<View> {
        if !geometry.is_valid() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a channel of an impossible geometry"));
        }
        let layout = Layout::new(geometry);
        Ok(View { memory: Memory::map(memfd, layout.total_bytes)?, layout })
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

    /// Holds `incarnation + 1` of the worker that shall stop.
    pub fn stop_word(&self, index: u16) -> &AtomicU32 {
        self.memory.u32(self.layout.worker(index) + worker::STOP)
    }

    pub fn account(&self, index: u16) -> account::Words<'_> {
        account::Words::new(&self.memory, self.layout.worker(index) + worker::ACCOUNT)
    }

    /// Not zero when all workers shall stop.
    pub fn drain_word(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.drain_word())
    }

    pub fn recycle(&self) -> Turn<'_> {
        Turn::of(self.memory.u64(self.layout.recycle_word()))
    }

    pub fn slot(&self, slot: u16) -> SlotView<'_> {
        let layout = &self.layout;
        SlotView {
            memory: &self.memory,
            at: layout.control(slot),
            body: Ring { offset: layout.body_ring(slot), size: BODY_RING_BYTES },
            response: Ring { offset: layout.response_ring(slot), size: RESPONSE_RING_BYTES },
            head_offset: layout.request_head(slot),
        }
    }

    /// Rung when the sampler of this worker has something to do.
    pub fn sampler_bell(&self, index: u16) -> &AtomicU32 {
        self.memory.u32(self.layout.worker(index) + worker::SAMPLER)
    }

    /// Holds when the request began that this worker shall end, in nanoseconds.
    pub fn end_word(&self, index: u16) -> &AtomicU64 {
        self.memory.u64(self.layout.worker(index) + worker::END)
    }

    /// How often a second stacks are sampled for a profile; 0 is not at all.
    pub fn profile_rate(&self) -> &AtomicU32 {
        self.memory.u32(self.layout.profile_rate())
    }

    /// Wakes a sleeping worker, if there is one.
    pub fn wake_a_worker(&self) {
        if let Some(index) = self.idle().wake_one().filter(|index| *index < layout::MAX_WORKERS) {
            crate::idle::ring(self.doorbell(index));
        }
    }
}

// === impl SlotView ===

impl<'m> SlotView<'m> {
    pub fn state(&self) -> &'m AtomicU64 {
        self.memory.u64(self.at + control::STATE)
    }
    pub fn head_length(&self) -> &'m AtomicU32 {
        self.memory.u32(self.at + control::HEAD_LENGTH)
    }
    pub fn thread(&self) -> &'m AtomicU32 {
        self.memory.u32(self.at + control::THREAD)
    }
    pub fn body_written(&self) -> &'m AtomicU64 {
        self.memory.u64(self.at + control::BODY_WRITTEN)
    }
    pub fn flags(&self) -> &'m AtomicU32 {
        self.memory.u32(self.at + control::FLAGS)
    }
    pub fn doorbell(&self) -> &'m AtomicU32 {
        self.memory.u32(self.at + control::DOORBELL)
    }
    pub fn response_read(&self) -> &'m AtomicU64 {
        self.memory.u64(self.at + control::RESPONSE_READ)
    }
    pub fn response_written(&self) -> &'m AtomicU64 {
        self.memory.u64(self.at + control::RESPONSE_WRITTEN)
    }
    pub fn body_read(&self) -> &'m AtomicU64 {
        self.memory.u64(self.at + control::BODY_READ)
    }
    pub fn waiting(&self) -> &'m AtomicU32 {
        self.memory.u32(self.at + control::WAITING)
    }
}
