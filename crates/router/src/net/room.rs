//! How many connections there is room for: each takes a descriptor, and their files, upstreams and bodies take some, too.
//!
//! Beyond that, connections stay in the backlog, and idle ones that have had their answer make way. It is told when that
//! begins, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The room that all threads share.
#[derive(Debug)]
pub struct Room {
    /// So many connections may be open.
    most: u64,
    /// So many are open.
    open: AtomicU64,
    is_full: AtomicBool,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    room: Arc<Room>,
}

/// Descriptors that are kept for other things than connections: a quarter, within these bounds.
const RESERVE: std::ops::RangeInclusive<u64> = 64..=1024;
/// The room is no longer full when one in so many places is free.
const FREE_AGAIN: u64 = 16;

// === impl Room ===

impl Room {
    /// The room that so many descriptors give.
    pub fn of(descriptors: u64) -> Arc<Room> {
        let reserve = (descriptors / 4).clamp(*RESERVE.start(), *RESERVE.end());
        // With a limit below the reserve nothing works well; some of it does.
        let most = descriptors.saturating_sub(reserve).max(descriptors / 4).max(1);
        Arc::new(Room { most, open: AtomicU64::new(0), is_full: AtomicBool::new(false) })
    }

    /// A place for one more connection, if there is one.
    pub fn enter(self: &Arc<Room>) -> Option<Place> {
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        let place = Place { room: Arc::clone(self) };
        if open >= self.most {
            if !self.is_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "{open} connections are open, as many as the limit of descriptors allows; others wait in the backlog; \
                     raise it with `ulimit -Hn`, or LimitNOFILE= in the unit of systemd"
                );
            }
            return None;
        }
        if open < self.most - self.most / FREE_AGAIN && self.is_full.load(Ordering::Relaxed) {
            self.is_full.store(false, Ordering::Relaxed);
        }
        Some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_for_files_and_upstreams() {
        let cases = [(1_048_576, 1_047_552), (1024, 768), (256, 192), (100, 36), (64, 16), (3, 1), (0, 1)];
        for (descriptors, most) in cases {
            assert_eq!(Room::of(descriptors).most, most, "{descriptors}");
        }
    }

    #[test]
    fn a_full_room_is_told_again_only_after_it_was_not() {
        let room = Room::of(1024);
        let is_full = || room.is_full.load(Ordering::Relaxed);
        let mut places: Vec<Place> = (0..768).map_while(|_| room.enter()).collect();
        assert!(places.len() == 768 && !is_full());
        assert!(room.enter().is_none() && room.enter().is_none() && is_full());
        drop(places.pop());
        places.extend(room.enter());
        assert!(places.len() == 768 && is_full());
        places.truncate(700);
        assert!(room.enter().is_some() && !is_full());
        drop(places);
        assert_eq!(room.open.load(Ordering::Relaxed), 0);
    }
}
