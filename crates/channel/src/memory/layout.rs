//! The layout of a channel's memory.
//!
//! ```text
//! header | idle set | workers' doorbells and accounts | mailboxes | submission queue | control words of slots | slots …
//! slot:  request head | request body ring | response ring
//! ```
//!
//! Offsets follow from the [`Geometry`] alone, which each side receives over its own control socket. No value that decides
//! where memory is read or written comes from the shared memory itself.
//!
//! A small request touches two pages of its slot. The control words (128 B each) of all slots are beside each other: the router
//! looks at those of free slots, too, which would take a page each.

use serde::{Deserialize, Serialize};

/// The most workers that one channel can name.
pub const MAX_WORKERS: u16 = 1024;
/// The most router threads that one channel can notify.
pub const MAX_THREADS: u16 = 64;
/// The most slots of one channel.
pub const MAX_SLOTS: u16 = 16384;
/// The most requests that one worker may run at a time.
pub const MAX_CLAIMS: u16 = 4096;

/// Bytes that a request's head (its CGI variables) may take: the router accepts heads of 64 KiB, and a query is in two
/// variables. Memory that no request has used takes no space.
pub const REQUEST_HEAD_BYTES: usize = 160 * 1024;
/// The most bytes of a request's body that are in the slot at one time.
pub const BODY_RING_BYTES: usize = 32 * 1024;
/// The most bytes of a response that are in the slot at one time: most pages fit whole, so that their worker never waits for
/// the router. Memory is used only where a response was written.
pub const RESPONSE_RING_BYTES: usize = 256 * 1024;

/// The most bytes of the stack of a slow request: the end of its head, which PHP has read by then.
pub const STACK_BYTES: usize = 1024;
/// Where the time is in the word about it.
pub(crate) const STACK_TIME_SHIFT: u32 = 16;

const CONTROL_BYTES: usize = 128;
const SLOT_BYTES: usize = REQUEST_HEAD_BYTES + BODY_RING_BYTES + RESPONSE_RING_BYTES;
const PAGE: usize = 4096;
const LINE: usize = 128;

/// The size of a channel. Both ends receive it from the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The number of slots, which is the most requests in the channel at one time: a power of two, 64 to [`MAX_SLOTS`].
    pub slots: u16,
    /// The number of router threads: 1 to [`MAX_THREADS`].
    pub threads: u16,
    /// The most requests that one worker runs at a time: 1 to [`MAX_CLAIMS`].
    pub claims: u16,
}

/// Offsets into a channel's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub geometry: Geometry,
    mailboxes: usize,
    mailbox_bytes: usize,
    queue: usize,
    controls: usize,
    slots: usize,
    pub total_bytes: usize,
}

/// Offsets into one worker's record.
pub(crate) mod worker {
    pub const DOORBELL: usize = 0;
    pub const STOP: usize = 4;
    /// The doorbell of its sampler.
    pub const SAMPLER: usize = 8;
    /// The start time of the request to end.
    pub const END: usize = 16;
    /// On a line of its own: the worker writes it with each request.
    pub const ACCOUNT: usize = 64;
    pub const BYTES: usize = 128;
}

/// Offsets into a worker's account.
pub(crate) mod account {
    /// `incarnation + 1` of the worker that the account belongs to.
    pub const LIFE: usize = 0;
    pub const BEGAN: usize = 8;
    pub const SLOT: usize = 16;
    pub const REQUESTS: usize = 24;
    pub const WALL: usize = 32;
    pub const CPU: usize = 40;
    pub const RUNNING: usize = 48;
    pub const TURN: usize = 56;
}

/// Offsets into the words of opcache, which are in the header.
pub(crate) mod opcache {
    /// When a worker has reported last.
    pub const REPORTED_AT: usize = 0;
    pub const NUMBERS: usize = 8;
    pub const BYTES: usize = 64;
}

/// Offsets of a slot's control words. The router writes the first cache line, the worker the second one.
pub(crate) mod control {
    pub const STATE: usize = 0;
    pub const HEAD_LENGTH: usize = 8;
    pub const THREAD: usize = 12;
    pub const BODY_WRITTEN: usize = 16;
    pub const FLAGS: usize = 24;
    pub const DOORBELL: usize = 28;
    pub const RESPONSE_READ: usize = 32;

    pub const RESPONSE_WRITTEN: usize = 64;
    pub const BODY_READ: usize = 72;
    pub const WAITING: usize = 80;
    pub const ABANDONED: usize = 84;
    /// When the request began, and the time that it took, in nanoseconds; its processor time, plus one.
    pub const BEGAN: usize = 88;
    pub const RAN: usize = 96;
    pub const CPU: usize = 104;
    /// The length of the stack of a slow request, and from bit 16 on the milliseconds after which it was taken; 0 without one.
    pub const STACK: usize = 112;
    /// How long the request occupied its worker, in nanoseconds, plus one.
    pub const OCCUPIED: usize = 120;
}

/// Bits of a slot's flags, all set by the router.
pub(crate) mod flags {
    /// The body ring holds the rest of the body.
    pub const BODY_END: u32 = 1;
    /// The rest of the body will not arrive.
    pub const BODY_FAILED: u32 = 2;
    /// The client is gone: the router discards the response.
    pub const CLIENT_GONE: u32 = 4;
    /// It has taken longer than allowed, and the router has answered it.
    pub const TIMED_OUT: u32 = 8;
}

// === impl Geometry ===

impl Geometry {
    /// A geometry for this number of workers, each with `claims` requests at a time, and for these router threads: enough
    /// slots that no worker waits while the router is busy.
    pub fn for_workers(workers: u32, claims: u16, threads: u16) -> Geometry {
        let claims = claims.clamp(1, MAX_CLAIMS);
        let wanted = workers.saturating_mul(Geometry::slots_of_worker(claims));
        let slots = wanted.clamp(64, u32::from(MAX_SLOTS)).next_power_of_two();
        Geometry { slots: slots as u16, threads: threads.clamp(1, MAX_THREADS), claims }
    }

    /// The slots for a worker with this number of requests at a time: those, and a few that wait for a place.
    pub fn slots_of_worker(claims: u16) -> u32 {
        u32::from(claims) + 3
    }

    pub(crate) fn is_valid(self) -> bool {
        self.slots.is_power_of_two()
            && (64..=MAX_SLOTS).contains(&self.slots)
            && (1..=MAX_THREADS).contains(&self.threads)
            && (1..=MAX_CLAIMS).contains(&self.claims)
    }
}

// === impl Layout ===

impl Layout {
    pub fn new(geometry: Geometry) -> Layout {
        let mailboxes = LINE + MAX_WORKERS as usize / 8 + MAX_WORKERS as usize * worker::BYTES;
        let mailbox_bytes = LINE + (geometry.slots as usize / 8).next_multiple_of(LINE);
        let queue = mailboxes + geometry.threads as usize * mailbox_bytes;
        let controls = queue + LINE + (2 * geometry.slots as usize * 8).next_multiple_of(LINE);
        let slots = (controls + geometry.slots as usize * CONTROL_BYTES).next_multiple_of(PAGE);
        Layout {
            geometry,
            mailboxes,
            mailbox_bytes,
            queue,
            controls,
            slots,
            total_bytes: slots + geometry.slots as usize * SLOT_BYTES,
        }
    }

    /// The word that orders all workers to finish their requests and exit.
    pub const fn drain_word(&self) -> usize {
        0
    }

    /// The word of the turn to exit for a replacement.
    pub const fn recycle_word(&self) -> usize {
        8
    }

    /// Samples per second of the workers' stacks, for a profile.
    pub const fn profile_rate(&self) -> usize {
        4
    }

    /// The number of the recording of the workers' memory.
    pub const fn memory_recording(&self) -> usize {
        16
    }

    /// How many requests may wait before a worker that takes one wakes another worker.
    pub const fn wake_threshold(&self) -> usize {
        20
    }

    /// The numbers of opcache.
    pub const fn opcache(&self) -> usize {
        24
    }

    pub const fn idle_bits(&self) -> usize {
        LINE
    }

    pub fn worker(&self, index: u16) -> usize {
        assert!(index < MAX_WORKERS);
        LINE + MAX_WORKERS as usize / 8 + index as usize * worker::BYTES
    }

    pub fn mailbox_sleeping(&self, thread: u16) -> usize {
        assert!(thread < self.geometry.threads);
        self.mailboxes + thread as usize * self.mailbox_bytes
    }

    pub fn mailbox_bits(&self, thread: u16) -> usize {
        self.mailbox_sleeping(thread) + LINE
    }

    pub fn queue_head(&self) -> usize {
        self.queue
    }

    pub fn queue_cells(&self) -> usize {
        self.queue + LINE
    }

    pub fn control(&self, slot: u16) -> usize {
        assert!(slot < self.geometry.slots);
        self.controls + slot as usize * CONTROL_BYTES
    }

    pub fn request_head(&self, slot: u16) -> usize {
        assert!(slot < self.geometry.slots);
        self.slots + slot as usize * SLOT_BYTES
    }

    pub fn body_ring(&self, slot: u16) -> usize {
        self.request_head(slot) + REQUEST_HEAD_BYTES
    }

    pub fn response_ring(&self, slot: u16) -> usize {
        self.body_ring(slot) + BODY_RING_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_is_aligned() {
        for geometry in
            [Geometry { slots: 64, threads: 1, claims: 1 }, Geometry { slots: 1024, threads: 64, claims: 100 }]
        {
            let layout = Layout::new(geometry);
            assert!(layout.worker(MAX_WORKERS - 1) + worker::BYTES <= layout.mailbox_sleeping(0));
            assert!(layout.mailbox_bits(geometry.threads - 1) + geometry.slots as usize / 8 <= layout.queue_head());
            assert!(layout.queue_cells() + 2 * geometry.slots as usize * 8 <= layout.control(0));
            assert_eq!(layout.control(0) % LINE, 0);
            assert!(layout.control(geometry.slots - 1) + CONTROL_BYTES <= layout.request_head(0));
            assert!(layout.body_ring(0) + BODY_RING_BYTES <= layout.response_ring(0));
            assert!(layout.response_ring(0) + RESPONSE_RING_BYTES <= layout.request_head(1));
            for bytes in [layout.request_head(0), SLOT_BYTES, REQUEST_HEAD_BYTES, BODY_RING_BYTES] {
                assert_eq!(bytes % PAGE, 0);
            }
            assert_eq!(layout.response_ring(geometry.slots - 1) + RESPONSE_RING_BYTES, layout.total_bytes);
            assert_eq!(layout.queue_head() % LINE, 0);
        }
    }

    #[test]
    fn slots_follow_the_number_of_workers() {
        assert_eq!(Geometry::for_workers(2, 1, 2).slots, 64);
        assert_eq!(Geometry::for_workers(100, 1, 2).slots, 512);
        assert_eq!(Geometry::for_workers(2, 500, 2).slots, 1024);
        assert_eq!(Geometry::for_workers(u32::MAX, 1, 2).slots, MAX_SLOTS);
        assert_eq!(
            Geometry::for_workers(u32::MAX, u16::MAX, 2),
            Geometry { slots: MAX_SLOTS, threads: 2, claims: MAX_CLAIMS }
        );
    }
}
