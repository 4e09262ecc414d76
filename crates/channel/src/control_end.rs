//! The supervisor's end of a channel: makes it, tells workers to stop, and tidies up after dead ones.
//!
//! The words that stop workers lie in shared memory, where a hostile worker can write them too: stop everyone, or take an
//! order back. So what was ordered is kept here, and [`ControlEnd::check_orders`] compares. Call it when a worker has
//! ended: ending is all that a false order makes a worker do.

use crate::account::{Account, Current};
use crate::idle;
use crate::layout::{Geometry, Layout, MAX_WORKERS, REQUEST_HEAD_BYTES};
use crate::memory::Memory;
use crate::state::{SlotState, Violation, WorkerId, unpack};
use crate::sync::{Ordering, fence};
use crate::view::View;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The supervisor's end.
#[derive(Debug)]
pub struct ControlEnd {
    memfd: OwnedFd,
    pub(crate) view: View,
    /// Whether all workers were told to stop.
    drained: bool,
    /// Which workers were told to stop, and live: their places, and what their stop words hold.
    stopped: BTreeMap<u16, u32>,
}

// === impl ControlEnd ===

impl ControlEnd {
    /// Makes a channel.
    ///
    /// # Errors
    /// When there is no memory or no descriptor for it.
    pub fn create(geometry: Geometry) -> io::Result<ControlEnd> {
        let memfd = Memory::create(Layout::new(geometry).total_bytes)?;
        let view = View::map(&memfd, geometry)?;
        Ok(ControlEnd { memfd, view, drained: false, stopped: BTreeMap::new() })
    }

    /// The channel's memory, to be handed to the other ends.
    pub fn memfd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    /// What the other ends must know.
    pub fn geometry(&self) -> Geometry {
        self.view.layout.geometry
    }

    /// Whether the worker in this place says that it has nothing to do. It may lie.
    pub fn says_idle(&self, index: u16) -> bool {
        self.view.idle().contains(index)
    }

    /// What this worker says of what it does; `None` before it serves. It may lie.
    pub fn account(&self, worker: WorkerId) -> Option<Account> {
        (worker.index < MAX_WORKERS).then(|| self.view.account(worker.index).read(worker)).flatten()
    }

    /// The head of the request that this worker says it runs: see [`crate::request::parse_head`]. `None` when it has
    /// finished it meanwhile. A client of the application wrote it, and the worker may have written over it.
    pub fn request_head(&self, current: Current) -> Option<Vec<u8>> {
        if !self.is_answering(current) {
            return None;
        }
        let words = self.view.slot(current.slot);
        let len = words.head_length().load(Ordering::Relaxed) as usize;
        if len > REQUEST_HEAD_BYTES {
            return None;
        }
        let mut head = Vec::new();
        self.view.memory.copy_out(words.head_offset, len, &mut head);
        fence(Ordering::Acquire);
        self.is_answering(current).then_some(head)
    }

    /// Whether the response of this request is not complete. A worker can write what this says, too.
    pub fn is_answering(&self, current: Current) -> bool {
        if current.slot >= self.view.layout.geometry.slots {
            return false;
        }
        let (sequence, state) = unpack(self.view.slot(current.slot).state().load(Ordering::Acquire));
        sequence == current.sequence && matches!(state, Some(SlotState::Claimed(_)))
    }

    /// Asks one worker to finish what it does and go.
    pub fn stop_worker(&mut self, worker: WorkerId) {
        let order = u32::from(worker.incarnation) + 1;
        self.stopped.insert(worker.index, order);
        self.view.stop_word(worker.index).store(order, Ordering::SeqCst);
        idle::ring(self.view.doorbell(worker.index));
    }

    /// Asks all workers, those to come too, to finish what they do and go.
    pub fn stop_all(&mut self) {
        self.drained = true;
        self.view.drain_word().store(1, Ordering::SeqCst);
        self.ring_all();
    }

    /// A worker is dead: nobody shall try to wake it, and its order to stop is over.
    pub fn worker_died(&mut self, worker: WorkerId) {
        self.view.idle().leave(worker.index);
        let order = u32::from(worker.incarnation) + 1;
        if self.stopped.get(&worker.index) == Some(&order) {
            self.stopped.remove(&worker.index);
            // Only what was ordered: anything else is for `check_orders` to find.
            let word = self.view.stop_word(worker.index);
            let _ = word.compare_exchange(order, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Compares the words that stop workers with what was ordered, and repeats the orders where they differ.
    ///
    /// # Errors
    /// When a worker wrote one of them: some worker ends, or goes on, against what was ordered.
    pub fn check_orders(&mut self) -> Result<(), Violation> {
        let drained = u32::from(self.drained);
        let mut kept = self.view.drain_word().swap(drained, Ordering::SeqCst) == drained;
        for index in 0..MAX_WORKERS {
            let order = self.stopped.get(&index).copied().unwrap_or(0);
            let word = self.view.stop_word(index);
            if word.load(Ordering::SeqCst) != order {
                word.store(order, Ordering::SeqCst);
                kept = false;
            }
        }
        if kept {
            return Ok(());
        }
        self.ring_all();
        Err(Violation("the words that stop workers were overwritten"))
    }

    /// All workers that ran when the rules were broken are dead, and none has been started since: nothing that they wrote
    /// here concerns those to come.
    pub fn workers_replaced(&mut self) {
        self.stopped.clear();
        let _ = self.check_orders();
        self.view.idle().clear();
    }

    fn ring_all(&self) {
        for index in 0..MAX_WORKERS {
            idle::ring(self.view.doorbell(index));
        }
    }
}
