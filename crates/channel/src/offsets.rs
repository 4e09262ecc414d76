//! Where things lie in a channel's memory, for tests that write there what a hostile worker would.

use crate::layout::{Geometry, Layout, control};
use crate::state;
pub use crate::state::SlotState;

pub const HEAD_LENGTH: usize = control::HEAD_LENGTH;
pub const BODY_READ: usize = control::BODY_READ;
pub const RESPONSE_READ: usize = control::RESPONSE_READ;
pub const RESPONSE_WRITTEN: usize = control::RESPONSE_WRITTEN;

pub fn total_bytes(geometry: Geometry) -> usize {
    Layout::new(geometry).total_bytes
}

/// Where the router's mailboxes begin. Before them: the words that stop and wake workers.
pub fn mailboxes(geometry: Geometry) -> usize {
    Layout::new(geometry).mailbox_sleeping(0)
}

pub fn queue_head(geometry: Geometry) -> usize {
    Layout::new(geometry).queue_head()
}

/// Where the cells begin: twice as many words as there are slots.
pub fn queue_cells(geometry: Geometry) -> usize {
    Layout::new(geometry).queue_cells()
}

/// Where a slot begins: with its state.
pub fn slot(geometry: Geometry, slot: u16) -> usize {
    Layout::new(geometry).control(slot)
}

/// A slot's word.
pub fn word(sequence: u32, state: SlotState) -> u64 {
    state::pack(sequence, state)
}
