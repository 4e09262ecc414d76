//! The requests of one thread in a generation's channel, by slot.

use super::running::RunningRequest;
use crate::backends::php::admission::RequestKind;
use std::cell::RefCell;
use std::rc::Rc;

/// The requests that run, and the last one that each slot had.
#[derive(Default)]
pub struct ActiveRequests {
    by_slot: RefCell<Vec<Option<Rc<RunningRequest>>>>,
    /// The last request of each slot, with its sequence number. A worker may die of a request after its answer.
    submitted: RefCell<Vec<(u32, RequestKind)>>,
}

// === impl ActiveRequests ===

impl ActiveRequests {
    /// Adds a request that was submitted in this slot.
    pub fn insert(&self, slot: u16, sequence: u32, running: &Rc<RunningRequest>) {
        let slot = usize::from(slot);
        let mut submitted = self.submitted.borrow_mut();
        if submitted.len() <= slot {
            submitted.resize(slot + 1, Default::default());
        }
        submitted[slot] = (sequence, running.wait.kind);
        let mut by_slot = self.by_slot.borrow_mut();
        if by_slot.len() <= slot {
            by_slot.resize_with(slot + 1, || None);
        }
        by_slot[slot] = Some(Rc::clone(running));
    }

    /// The request in this slot. `None` for the slot of a client that left.
    pub fn get(&self, slot: u16) -> Option<Rc<RunningRequest>> {
        self.by_slot.borrow().get(usize::from(slot)).cloned().flatten()
    }

    /// Whether a request of this thread is in this slot.
    pub fn contains(&self, slot: u16) -> bool {
        self.by_slot.borrow().get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// Removes the request in this slot.
    pub fn remove(&self, slot: u16) {
        if let Some(running) = self.by_slot.borrow_mut().get_mut(usize::from(slot)) {
            *running = None;
        }
    }

    /// The kind of the request that this slot had under this sequence number, if it was the last one in the slot.
    pub fn submitted(&self, slot: u16, sequence: u32) -> Option<RequestKind> {
        let submitted = self.submitted.borrow();
        submitted.get(usize::from(slot)).filter(|(last, _)| *last == sequence).map(|(_, kind)| *kind)
    }

    /// Visits each request that runs now. The visit may remove requests.
    pub fn for_each(&self, mut visit: impl FnMut(u16, &Rc<RunningRequest>)) {
        let active: Vec<_> = self
            .by_slot
            .borrow()
            .iter()
            .enumerate()
            .filter_map(|(slot, running)| running.clone().map(|running| (slot as u16, running)))
            .collect();
        for (slot, running) in active {
            visit(slot, &running);
        }
    }
}
