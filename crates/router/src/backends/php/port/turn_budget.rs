//! How much a port moves between PHP and its clients before other tasks get a turn.
//!
//! A worker can hold thousands of requests, and each can have a full ring: without a limit, one application would stop the
//! thread's other connections while all of that is written to temporary files. The slots that are left wait for the next turn.

use std::cell::Cell;

/// The bytes that a port may still move in this turn of the event loop.
pub struct TurnBudget {
    bytes: Cell<usize>,
}

/// Less than a millisecond of copies to the kernel's memory.
const BYTES_PER_TURN: usize = 512 * 1024;
/// A look at a slot takes about as long as the copy of this number of bytes.
const BYTES_PER_LOOK: usize = 512;

// === impl TurnBudget ===

impl TurnBudget {
    /// The whole of it.
    pub fn new() -> TurnBudget {
        TurnBudget { bytes: Cell::new(BYTES_PER_TURN) }
    }

    /// A turn begins.
    pub fn renew(&self) {
        self.bytes.set(BYTES_PER_TURN);
    }

    /// This number of bytes was moved, after a look at a slot.
    pub fn spend(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes.saturating_add(BYTES_PER_LOOK)));
    }

    /// Whether other tasks must get a turn first.
    pub fn is_spent(&self) -> bool {
        self.bytes.get() == 0
    }
}
