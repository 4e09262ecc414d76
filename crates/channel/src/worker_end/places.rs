//! A worker that runs several requests at a time: it does not wait in [`WorkerEnd::next`], but in the event loop of its
//! script.
//!
//! While it has a free place and has found no request, it is in the idle set, as a worker that sleeps is. The router then
//! rings its doorbell for a request, and a thread beside the event loop ([`WorkerEnd::wait_for_ring`]) makes a descriptor
//! readable that the loop watches. The loop may be blocked at that time. Then that thread passes the wake-up on to another
//! worker.

use super::end::WorkerEnd;
use crate::memory::doorbell;
use crate::memory::layout::REQUEST_HEAD_BYTES;
use crate::slot_state::{SlotState, pack};
use crate::sync::{Ordering, fence};
use std::time::Duration;

// === impl WorkerEnd ===

impl WorkerEnd {
    /// This worker has a free place and found no request: from now on its doorbell is rung for one. `false` if a request
    /// waits already.
    ///
    /// Remove former signs of a ring before this, not after it.
    #[must_use]
    pub fn announce_place(&self) -> bool {
        let view = &*self.own.channel.view;
        view.idle().enter(self.own.me.index);
        let is_quiet = !view.queue().has_hint();
        if !is_quiet {
            view.idle().leave(self.own.me.index);
        }
        is_quiet
    }

    /// This worker takes no request now. A wake-up that it got for one is passed on.
    pub fn withdraw(&self) {
        self.own.channel.view.idle().leave(self.own.me.index);
        self.pass_on();
    }

    /// Wakes another worker, if a request waits.
    pub fn pass_on(&self) {
        let view = &*self.own.channel.view;
        if view.queue().has_hint() {
            view.wake_a_worker();
        }
    }

    /// The state of this worker's doorbell, for [`WorkerEnd::wait_for_ring`].
    pub fn rings(&self) -> u32 {
        self.own.channel.view.doorbell(self.own.me.index).load(Ordering::Acquire)
    }

    /// Waits until the doorbell has another state than `seen`, at most for this time, or less. Returns its state.
    pub fn wait_for_ring(&self, seen: u32, timeout: Option<Duration>) -> u32 {
        doorbell::wait(self.own.channel.view.doorbell(self.own.me.index), seen, timeout);
        self.rings()
    }

    /// Rings this worker's own doorbell.
    pub fn ring(&self) {
        doorbell::ring(self.own.channel.view.doorbell(self.own.me.index));
    }

    /// The head of a request that this worker runs; `None` if it has finished it.
    pub fn head_of(&self, slot: u16, sequence: u32) -> Option<Vec<u8>> {
        let view = &*self.own.channel.view;
        if slot >= view.layout.geometry.slots {
            return None;
        }
        let words = view.slot(slot);
        let claimed = pack(sequence, SlotState::Claimed(self.own.me));
        let is_claimed = || words.state().load(Ordering::Acquire) == claimed;
        let len = words.head_length().load(Ordering::Relaxed) as usize;
        if !is_claimed() || len > REQUEST_HEAD_BYTES {
            return None;
        }
        let mut head = Vec::new();
        words.read_head(len, &mut head);
        fence(Ordering::Acquire);
        is_claimed().then_some(head)
    }
}
