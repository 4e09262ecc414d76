//! The state that the router's end and its exchanges share: the mapping, the router's side of the submission queue, and
//! the register of slots.

use super::slot_register::SlotRegister;
use crate::lock_free::submission::Hint;
use crate::slot_state::{SlotState, pack};
use crate::sync::{AtomicU64, Ordering};
use crate::view::View;
use crate::violation::Violation;
use std::sync::{Mutex, MutexGuard};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Shared {
    pub view: View,
    /// The next ticket of the submission queue, in private memory: workers can't write it.
    pub tail: AtomicU64,
    /// The number of hints in the queue that belong to cancelled requests, at the last check.
    cancelled: AtomicU64,
    register: Mutex<SlotRegister>,
}

// === impl Shared ===

impl Shared {
    pub fn new(view: View, tail: u64, register: SlotRegister) -> Shared {
        Shared { view, tail: tail.into(), cancelled: 0.into(), register: Mutex::new(register) }
    }

    pub fn lock(&self) -> MutexGuard<'_, SlotRegister> {
        // Nothing panics while the lock is held; if it did, the lists would still be whole.
        self.register.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Pushes a hint, and returns its ticket. The caller wakes a worker.
    pub fn push(&self, slot: u16, sequence: u32) -> u64 {
        let ticket = self.tail.fetch_add(1, Ordering::AcqRel);
        self.view.queue().publish(ticket, Hint { slot, sequence: sequence as u16 });
        ticket
    }

    /// Whether the ticket has been taken, or skipped.
    pub fn is_taken(&self, ticket: u64) -> bool {
        self.view.queue().is_taken(ticket)
    }

    /// The number of hints in the queue.
    ///
    /// # Errors
    /// When a worker wrote an impossible head.
    pub fn hints(&self) -> Result<u64, Violation> {
        let hints = || self.view.queue().waiting(&self.tail);
        hints().or_else(|_| {
            // Another thread may be repairing the queue: it holds the lock then.
            let _register = self.lock();
            hints().map_err(|_| Violation("the head of the submission queue is out of range"))
        })
    }

    /// The number of requests that wait for a worker, if the queue's words are right.
    pub fn requests_waiting(&self) -> u64 {
        let hints = self.hints().unwrap_or(0);
        let cancelled = self.cancelled.load(Ordering::Relaxed);
        if cancelled < hints || hints == 0 {
            return hints.saturating_sub(cancelled);
        }
        // Workers have passed some of the cancelled hints since the last check.
        let mut register = self.lock();
        self.collect_hinted(&mut register);
        self.view.queue().waiting(&self.tail).unwrap_or(0).saturating_sub(register.hinted() as u64)
    }

    pub fn take_free_slot(&self) -> Option<(u16, u32)> {
        let mut register = self.lock();
        if register.free() == 0 {
            self.collect_hinted(&mut register);
        }
        register.take_free()
    }

    /// Frees the slots of cancelled requests whose hints have left the queue.
    pub fn collect_hinted(&self, register: &mut SlotRegister) {
        register.collect_hinted(|ticket| self.is_taken(ticket));
        self.cancelled.store(register.hinted() as u64, Ordering::Relaxed);
    }

    /// The slot of a cancelled request is free, but its hint is still in the queue.
    pub fn cancelled(&self, slot: u16, sequence: u32, ticket: u64) {
        let mut register = self.lock();
        register.add_hinted(slot, sequence, ticket);
        self.cancelled.store(register.hinted() as u64, Ordering::Relaxed);
    }

    /// Frees the slot, whatever its word contains.
    pub fn release(&self, slot: u16, sequence: u32) {
        self.view.slot(slot).state().store(pack(sequence, SlotState::Free), Ordering::Release);
        self.lock().add_free(slot, sequence);
    }

    /// A worker runs a request whose client is gone: notifies the worker, and frees the slot when it has finished.
    pub fn orphan(&self, slot: u16, sequence: u32) {
        self.view.notify_client_gone(slot);
        self.lock().add_orphan(slot, sequence, false);
    }

    /// Quarantines the slot: see [`SlotRegister::quarantine`].
    pub fn quarantine(&self, slot: u16, sequence: u32) {
        self.lock().quarantine(&self.view, slot, sequence);
    }
}
