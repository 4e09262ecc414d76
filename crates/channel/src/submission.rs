//! The submission queue: a bounded ring of hints, "slot S waits with request Q", from the router to the workers.
//!
//! Many producers (the router's threads) and many consumers (the workers). What makes it differ from the usual
//! bounded queue is that a consumer may be killed between any two instructions, and may write what it likes:
//!
//! - Taking a hint is one compare-and-swap of `head`; a consumer never writes a cell, so none can be left half taken.
//! - A hint is not the truth: the slot's own word is. A consumer that took a hint still has to claim the slot, and
//!   fails if the hint was stale. One that is killed in between strands a slot in `Submitted`; the router sees that
//!   `head` has passed the slot's ticket and pushes the hint again.
//! - The producers' position is in the router's own memory. Workers need none: a cell is published when it carries
//!   its own ticket.
//!
//! A slot has at most one live hint, so a ring of twice as many cells as slots holds them all, pushed-again ones too.
//! The idea of a ticket in each cell is Dmitry Vyukov's bounded MPMC queue (1024cores.net).

use crate::sync::{AtomicU64, Ordering};

/// A hint: this slot waits, with the request whose sequence number ends in these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub slot: u16,
    pub sequence: u16,
}

/// The queue as it lies in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct SubmissionQueue<'m> {
    /// The next ticket to be taken. Workers move it.
    pub head: &'m AtomicU64,
    /// A power of two of cells: `[ticket + 1: 32][slot: 16][sequence: 16]`.
    pub cells: &'m [AtomicU64],
}

/// `head` is where it can't be: a worker wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadOutOfRange;

// === impl SubmissionQueue ===

impl SubmissionQueue<'_> {
    /// Publishes a hint under the ticket that the caller reserved from the router's own `tail`.
    pub fn publish(&self, ticket: u64, hint: Hint) {
        self.cell(ticket).store(cell_word(ticket, hint), Ordering::Release);
    }

    /// Takes the oldest hint; `None` when there is none, or when the oldest is not published yet.
    pub fn take(&self) -> Option<Hint> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let word = self.cell(head).load(Ordering::Acquire);
            if word >> 32 != published(head) {
                return None;
            }
            match self.head.compare_exchange_weak(head, head.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Hint { slot: (word >> 16) as u16, sequence: word as u16 }),
                Err(now) => head = now,
            }
        }
    }

    /// Whether a hint waits.
    pub fn has_hint(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        self.cell(head).load(Ordering::Acquire) >> 32 == published(head)
    }

    /// How many tickets below `tail` have not been taken.
    ///
    /// # Errors
    /// When `head` is beyond `tail` or further behind than the ring is long.
    pub fn waiting(&self, tail: u64) -> Result<u64, HeadOutOfRange> {
        let waiting = tail.wrapping_sub(self.head.load(Ordering::Acquire));
        // A producer that has reserved a ticket may be overtaken by a consumer only after it published: never beyond tail.
        if waiting > self.cells.len() as u64 { Err(HeadOutOfRange) } else { Ok(waiting) }
    }

    /// Whether the ticket has been taken (or skipped).
    pub fn is_taken(&self, ticket: u64) -> bool {
        (self.head.load(Ordering::Acquire).wrapping_sub(ticket) as i64) > 0
    }

    /// Empties the queue for a router that takes over, and returns its first ticket.
    pub fn restart(&self) -> u64 {
        // A ticket that no cell can carry: further on than any that the former router can have published.
        let next = self.head.load(Ordering::Acquire).wrapping_add(2 * self.cells.len() as u64) & u64::from(u32::MAX);
        for cell in self.cells {
            cell.store(0, Ordering::Release);
        }
        self.head.store(next, Ordering::Release);
        next
    }

    fn cell(&self, ticket: u64) -> &AtomicU64 {
        &self.cells[ticket as usize & (self.cells.len() - 1)]
    }
}

fn cell_word(ticket: u64, hint: Hint) -> u64 {
    published(ticket) << 32 | u64::from(hint.slot) << 16 | u64::from(hint.sequence)
}

/// What the upper half of a published cell holds. Never zero for the first round, so that fresh memory is empty.
fn published(ticket: u64) -> u64 {
    ticket.wrapping_add(1) & u64::from(u32::MAX)
}
