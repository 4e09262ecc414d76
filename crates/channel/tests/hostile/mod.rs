//! The means of a hostile worker: it writes anything to the channel's memory, through a mapping of its own.

use howdah_channel::{Geometry, SlotState, offsets};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of a channel, for writing garbage.
pub struct HostileMemory {
    start: *mut u8,
    geometry: Geometry,
}

// SAFETY: accessed through atomics only.
unsafe impl Send for HostileMemory {}
// SAFETY: as above.
unsafe impl Sync for HostileMemory {}

#[allow(dead_code)] // not every test writes everything
impl HostileMemory {
    pub fn map(memfd: impl AsFd, geometry: Geometry) -> HostileMemory {
        let len = offsets::total_bytes(geometry);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, memfd, 0)
        };
        HostileMemory { start: start.expect("a mapping").cast(), geometry }
    }

    pub fn len(&self) -> usize {
        offsets::total_bytes(self.geometry)
    }

    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len());
        // SAFETY: within the mapping and aligned, just checked; the mapping lives as long as `self`.
        unsafe { &*self.start.add(offset).cast() }
    }

    pub fn queue_head(&self) -> &AtomicU64 {
        self.u64(offsets::queue_head(self.geometry))
    }

    pub fn queue_cell(&self, n: usize) -> &AtomicU64 {
        self.u64(offsets::queue_cells(self.geometry) + n % (2 * usize::from(self.geometry.slots)) * 8)
    }

    /// Orders all workers to stop, or (`false`) to go on.
    pub fn order_all_to_stop(&self, stop: bool) {
        self.u64(offsets::drain_word(self.geometry)).store(stop.into(), Ordering::SeqCst);
    }

    /// Orders the worker of this index and incarnation to stop, or (`None`) removes the order of this index.
    pub fn order_to_stop(&self, index: u16, incarnation: Option<u16>) {
        let order = incarnation.map_or(0, |incarnation| u64::from(incarnation) + 1);
        let word = self.u64(offsets::worker(self.geometry, index));
        word.store(order << 32 | word.load(Ordering::SeqCst) & u64::from(u32::MAX), Ordering::SeqCst);
    }

    /// The bits of the first 64 workers that sleep.
    pub fn idle_bits(&self) -> &AtomicU64 {
        self.u64(offsets::idle_bits(self.geometry))
    }

    /// The 64-bit word at an offset into a slot's control words.
    pub fn control(&self, slot: u16, offset: usize) -> &AtomicU64 {
        self.u64(offsets::slot(self.geometry, slot) + offset)
    }

    pub fn state(&self, slot: u16) -> &AtomicU64 {
        self.control(slot, 0)
    }

    /// The sequence number of a slot's present request.
    pub fn sequence(&self, slot: u16) -> u32 {
        (self.state(slot).load(Ordering::SeqCst) >> 32) as u32
    }

    pub fn set_state(&self, slot: u16, sequence: u32, state: SlotState) {
        self.state(slot).store(offsets::word(sequence, state), Ordering::SeqCst);
    }
}

impl Drop for HostileMemory {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len()) };
    }
}
