//! The memory of requests that a client holds open.
//!
//! HPACK makes a head of 64 KiB from a few bytes, and a connection has many streams: without a limit, a client that sends
//! some kilobytes would take megabytes. In HTTP/3, the heads of many streams may come at the same time, each in small parts.
//!
//! Each connection may take [`OF_CONNECTION`]; what it takes beyond that, up to [`MOST_OF_REQUEST`] for each request that it
//! may have, is a part of [`SHARED`], which all connections of the process have together. A request beyond these limits is
//! refused (REFUSED_STREAM): its client may send it again. A single request is never refused.
//!
//! A connection takes no more than an eighth of what is free in `SHARED` (a dynamic threshold, as in the buffers of network
//! switches). The less is free, the less may each connection have, and those that have most already get nothing more: some
//! that are greedy leave room for others, however many they are.

use crate::protocols::connection::limits::{MAX_HEAD_BYTES, MAX_HEADERS};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of one connection's open requests.
#[derive(Debug)]
pub struct HeadMemory {
    used: Cell<usize>,
    /// No more is taken.
    most: usize,
    /// All connections of the process.
    shared: &'static AtomicUsize,
}

/// The memory of one open request. Dropping it frees the memory.
#[derive(Debug)]
pub struct HeldHead {
    memory: Rc<HeadMemory>,
    bytes: usize,
}

/// Every connection may take this much: more than the largest head.
pub const OF_CONNECTION: usize = 128 * 1024;
/// The average of a connection's requests, at most, if it has as many as it may. With the usual 128, a connection takes 4 MiB.
const MOST_OF_REQUEST: usize = 32 * 1024;
/// The most that all connections together take beyond [`OF_CONNECTION`]: about 13,000 usual requests at the same time.
const SHARED: usize = 256 * 1024 * 1024;
/// A connection takes this part of the free memory, at most.
const PART_OF_FREE: usize = 8;
/// The task of a request, with the state of its stream.
const STREAM_BYTES: usize = 16 * 1024;
/// A header beside its name and its value.
const HEADER_BYTES: usize = 128;
const _: () = assert!(STREAM_BYTES + MAX_HEAD_BYTES + MAX_HEADERS * HEADER_BYTES <= OF_CONNECTION);

// === impl HeadMemory ===

impl HeadMemory {
    /// Of a connection that may have this number of requests at the same time.
    pub fn new(max_requests: u32) -> Rc<HeadMemory> {
        static USED: AtomicUsize = AtomicUsize::new(0);
        HeadMemory::sharing(&USED, max_requests)
    }

    fn sharing(shared: &'static AtomicUsize, max_requests: u32) -> Rc<HeadMemory> {
        let most = (max_requests as usize).saturating_mul(MOST_OF_REQUEST).max(OF_CONNECTION);
        Rc::new(HeadMemory { used: Cell::new(0), most, shared })
    }

    /// Takes the memory of a request with this head; `None` if it must be refused.
    pub fn hold(self: &Rc<Self>, head: &Parts) -> Option<HeldHead> {
        self.take(STREAM_BYTES + head_size(head))
    }

    /// Takes the memory of a stream without its head, if the head comes later; `None` if the stream must be refused.
    pub fn hold_stream(self: &Rc<Self>) -> Option<HeldHead> {
        self.take(STREAM_BYTES)
    }

    /// Takes the memory of the head of such a stream.
    pub fn hold_head(self: &Rc<Self>, head: &Parts) -> Option<HeldHead> {
        self.take(head_size(head))
    }

    /// Takes the memory of these bytes, which are a part of a head.
    pub fn hold_bytes(self: &Rc<Self>, bytes: usize) -> Option<HeldHead> {
        self.take(bytes)
    }

    fn take(self: &Rc<Self>, bytes: usize) -> Option<HeldHead> {
        self.reserve(bytes).then(|| HeldHead { memory: Rc::clone(self), bytes })
    }

    fn reserve(&self, bytes: usize) -> bool {
        let before = self.used.get();
        let after = before + bytes;
        if bytes > 0 && before > 0 && after > self.most {
            return false;
        }
        let more = beyond(after) - beyond(before);
        let free = SHARED.saturating_sub(self.shared.load(Ordering::Relaxed));
        if more > 0 && before > 0 && beyond(after) > free / PART_OF_FREE {
            return false;
        }
        if more > 0 && self.shared.fetch_add(more, Ordering::Relaxed) + more > SHARED && before > 0 {
            self.shared.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.used.set(after);
        true
    }
}

// === impl HeldHead ===

impl HeldHead {
    /// More bytes have come. Returns whether there is room for them.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        self.grow_by(bytes.saturating_sub(self.bytes))
    }

    /// More bytes are kept with it. Returns whether there is room for them.
    #[must_use]
    pub fn grow_by(&mut self, more: usize) -> bool {
        let has_room = self.memory.reserve(more);
        if has_room {
            self.bytes += more;
        }
        has_room
    }
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        let before = self.memory.used.get();
        let after = before - self.bytes;
        self.memory.used.set(after);
        let less = beyond(before) - beyond(after);
        if less > 0 {
            self.memory.shared.fetch_sub(less, Ordering::Relaxed);
        }
    }
}

/// The part of a connection's memory that counts for all connections.
fn beyond(used: usize) -> usize {
    used.saturating_sub(OF_CONNECTION)
}

fn head_size(head: &Parts) -> usize {
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    target + headers_size(&head.headers)
}

/// The memory that headers take.
pub fn headers_size(headers: &HeaderMap) -> usize {
    let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + HEADER_BYTES;
    headers.iter().map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(value: usize) -> Parts {
        http::Request::builder().uri("/").header("x", "y".repeat(value)).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_connection_holds_a_limited_number_of_heads() {
        static USED: AtomicUsize = AtomicUsize::new(0);
        let memory = HeadMemory::sharing(&USED, 128);
        let most = |head: &Parts| (0..1000).map_while(|_| memory.hold(head)).collect::<Vec<_>>().len();
        assert_eq!(most(&head(2000)), 226, "heads of a usual size");
        assert_eq!(most(&head(60_000)), 54);
        assert_eq!(HeadMemory::sharing(&USED, 1).take(usize::from(u16::MAX) + 9).map(|one| one.bytes), Some(65544));
        assert_eq!((memory.used.get(), USED.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_head_that_comes_in_parts_counts_as_it_grows() {
        static USED: AtomicUsize = AtomicUsize::new(0);
        let memory = HeadMemory::sharing(&USED, 128);
        let streams: Vec<_> = (0..1000).map_while(|_| memory.hold_stream()).collect();
        assert_eq!(streams.len(), 256);
        drop(streams);
        let mut held = memory.hold_bytes(10).unwrap();
        assert!(held.grow_to(OF_CONNECTION) && held.grow_to(20) && held.grow_to(OF_CONNECTION + 20));
        assert_eq!((memory.used.get(), USED.load(Ordering::Relaxed)), (OF_CONNECTION + 20, 20));
        assert!(!held.grow_to(1 << 30));
        assert_eq!((memory.used.get(), USED.load(Ordering::Relaxed)), (OF_CONNECTION + 20, 20));
        drop(held);
        assert_eq!((memory.used.get(), USED.load(Ordering::Relaxed), Rc::strong_count(&memory)), (0, 0, 1));
        // One request is accepted whatever the number of requests is.
        let memory = HeadMemory::sharing(&USED, 1);
        let (_stream, _head) = (memory.hold_stream().unwrap(), memory.hold_head(&head(60_000)).unwrap());
    }

    #[test]
    fn others_have_their_part_when_the_memory_of_all_is_taken() {
        static USED: AtomicUsize = AtomicUsize::new(0);
        let (small, large) = (head(1000), head(60_000));
        for (greedy, least) in [(100, 100), (1000, 15)] {
            let hostile: Vec<_> = (0..greedy).map(|_| HeadMemory::sharing(&USED, 128)).collect();
            // In turns, so that each has as much as it can.
            let turns = (0..100).flat_map(|_| &hostile);
            let held: Vec<_> = turns.filter_map(|one| one.hold(&large)).collect();
            assert!(USED.load(Ordering::Relaxed) <= SHARED && held.len() < 6000, "{}", held.len());
            let other = HeadMemory::sharing(&USED, 128);
            let others: Vec<_> = (0..100).map_while(|_| other.hold(&small)).collect();
            assert!(others.len() >= least, "{}", others.len());
            drop((held, others));
        }
        assert_eq!(USED.load(Ordering::Relaxed), 0);
    }
}
