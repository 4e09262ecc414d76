//! The offsets of a channel's words, for tests that write there as a hostile worker would.

use super::layout::{Geometry, Layout, control};
use crate::slot_state::{self, SlotState};

/// A request's head: its length.
pub const HEAD_LENGTH: usize = control::HEAD_LENGTH;
/// The worker's position in the body.
pub const BODY_READ: usize = control::BODY_READ;
/// The slot's flags; the upper half of these 64 bits is its doorbell.
pub const FLAGS: usize = control::FLAGS;
/// The router's position in the body.
pub const BODY_WRITTEN: usize = control::BODY_WRITTEN;
/// The router's position in the response.
pub const RESPONSE_READ: usize = control::RESPONSE_READ;
/// The worker's position in the response.
pub const RESPONSE_WRITTEN: usize = control::RESPONSE_WRITTEN;

/// The size of the memory.
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

/// One bit for each slot that wants a thread's attention.
pub fn mailbox_bits(geometry: Geometry, thread: u16) -> usize {
    Layout::new(geometry).mailbox_bits(thread)
}

/// A worker's doorbell; the upper half of these 64 bits is the word that stops it.
pub fn worker(geometry: Geometry, index: u16) -> usize {
    Layout::new(geometry).worker(index)
}

/// The head of the submission queue.
pub fn queue_head(geometry: Geometry) -> usize {
    Layout::new(geometry).queue_head()
}

/// The start of the cells: twice as many words as there are slots.
pub fn queue_cells(geometry: Geometry) -> usize {
    Layout::new(geometry).queue_cells()
}

/// The start of a slot's control words, which is its state.
pub fn slot(geometry: Geometry, slot: u16) -> usize {
    Layout::new(geometry).control(slot)
}

/// A slot's word.
pub fn word(sequence: u32, state: SlotState) -> u64 {
    slot_state::pack(sequence, state)
}
