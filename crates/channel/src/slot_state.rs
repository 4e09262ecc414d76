//! The state of a slot: one atomic word, and the table of the transitions with the process that may make each.
//!
//! | from      | to        | by                | when                                                               |
//! |-----------|-----------|-------------------|--------------------------------------------------------------------|
//! | free      | submitted | router (store)    | a request has been written into the slot; the sequence number grows |
//! | submitted | claimed   | a worker (CAS)    | the worker took the slot's number from the submission queue        |
//! | submitted | free      | router (CAS)      | the client left, or the request's time in the queue is over        |
//! | claimed   | done      | that worker (CAS) | the whole response is in the ring: the worker's last access        |
//! | claimed   | free      | router (store)    | the supervisor reported that this worker is dead                   |
//! | done      | free      | router (store)    | the response has been copied out                                   |
//!
//! The word contains a sequence number that grows with each request, so that the compare-and-swap of a late write for an
//! earlier request fails. Workers are untrusted: the router keeps the sequence number and the last state that it saw in
//! its own memory. It treats each word that the table does not allow as a [`Violation`](crate::Violation).

use std::fmt;

/// Names one life of one worker of a generation.
///
/// `index` selects the worker's doorbell, record and bit in the idle set. It is reused after the worker's death;
/// `incarnation` distinguishes the lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct WorkerId {
    /// The worker's index in the channel: below [`crate::MAX_WORKERS`].
    pub index: u16,
    /// The number of this life: it grows with each worker that is started with this index.
    pub incarnation: u16,
}

/// The state that a slot's word contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The router may write a request into the slot.
    Free,
    /// A request waits for a worker.
    Submitted,
    /// This worker runs the request.
    Claimed(WorkerId),
    /// The response is complete; this worker wrote it.
    Done(WorkerId),
}

const FREE: u64 = 0;
const SUBMITTED: u64 = 1;
const CLAIMED: u64 = 2;
const DONE: u64 = 3;

/// `[sequence: 32][incarnation: 16][index: 12][tag: 4]`
pub(crate) fn pack(sequence: u32, state: SlotState) -> u64 {
    let (tag, worker) = match state {
        SlotState::Free => (FREE, None),
        SlotState::Submitted => (SUBMITTED, None),
        SlotState::Claimed(worker) => (CLAIMED, Some(worker)),
        SlotState::Done(worker) => (DONE, Some(worker)),
    };
    let worker = worker.map_or(0, |w| u64::from(w.incarnation) << 16 | u64::from(w.index & 0xfff) << 4);
    u64::from(sequence) << 32 | worker | tag
}

/// The sequence number and the state of a word; `None` for a word that [`pack`] does not make: the router's compare-and-swap would
/// never find it again.
pub(crate) fn unpack(word: u64) -> (u32, Option<SlotState>) {
    let worker = WorkerId { index: (word >> 4 & 0xfff) as u16, incarnation: (word >> 16) as u16 };
    let has_no_worker = word & 0xffff_fff0 == 0;
    let state = match word & 0xf {
        FREE if has_no_worker => Some(SlotState::Free),
        SUBMITTED if has_no_worker => Some(SlotState::Submitted),
        CLAIMED => Some(SlotState::Claimed(worker)),
        DONE => Some(SlotState::Done(worker)),
        _ => None,
    };
    ((word >> 32) as u32, state)
}

// === impl WorkerId ===

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_reverses_pack() {
        let worker = WorkerId { index: 1023, incarnation: u16::MAX };
        for state in [SlotState::Free, SlotState::Submitted, SlotState::Claimed(worker), SlotState::Done(worker)] {
            for sequence in [0, 1, u32::MAX] {
                assert_eq!(unpack(pack(sequence, state)), (sequence, Some(state)));
            }
        }
    }

    #[test]
    fn a_word_that_pack_does_not_make_is_no_state() {
        for word in [0xf, 0x10, 0x11, 0xff0 | SUBMITTED, 1 << 31, 1 << 31 | SUBMITTED] {
            assert_eq!(unpack(word).1, None, "{word:x}");
        }
    }

    #[test]
    fn fresh_memory_reads_as_free() {
        assert_eq!(unpack(0), (0, Some(SlotState::Free)));
    }
}
