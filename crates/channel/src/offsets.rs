//! Where things lie in a channel's memory, for tests that write there what a hostile worker would.

use crate::layout::{Geometry, Layout, control};
use crate::state;
pub use crate::state::SlotState;

pub const HEAD_LENGTH: usize = control::HEAD_LENGTH;
pub const BODY_READ: usize = control::BODY_READ;
/// The upper half is the slot's doorbell.
pub const FLAGS: usize = control::FLAGS;
pub const BODY_WRITTEN: usize = control::BODY_WRITTEN;
pub const RESPONSE_READ: usize = control::RESPONSE_READ;
pub const RESPONSE_WRITTEN: usize = control::RESPONSE_WRITTEN;

pub fn total_bytes(geometry: Geometry) -> usize {
    Layout::new(geometry).total_bytes
}

/// The word that stops all workers.
pub fn drain_word(geometry: Geometry) -> usize {
    Layout::new(geometry).drain_word()
}

/// One bit for each sleeping worker.
pub fn idle_bits(geometry: Geometry) -> usize {
    Layout::new(geometry).idle_bits()
}

/// A worker's doorbell, and in the upper half of the same 64 bits the word that stops it.
pub fn worker(geometry: Geometry, index: u16) -> usize {
    Layout::new(geometry).worker(index)
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
