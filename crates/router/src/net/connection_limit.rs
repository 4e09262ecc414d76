//! The limit of connections: each takes a descriptor, and their files, upstreams and bodies take some, too.
//!
//! At the limit, new connections stay in the backlog, and idle ones whose requests were answered are closed. The beginning
//! of that state is logged, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limit that all threads share.
#[derive(Debug)]
pub struct ConnectionLimit {
    /// How many connections may be open.
    max: u64,
    /// How many are open.
    open: AtomicU64,
    is_reached: AtomicBool,
}

/// The right of a connection to be open. It ends when this is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
}

/// Descriptors that are kept for other things than connections: a quarter, within these bounds.
const RESERVE: std::ops::RangeInclusive<u64> = 64..=1024;
/// The limit counts as reached until one in this many permits is free again.
const FREE_AGAIN: u64 = 16;

// === impl ConnectionLimit ===

impl ConnectionLimit {
    /// The limit for this number of descriptors.
    pub fn of_descriptors(descriptors: u64) -> Arc<ConnectionLimit> {
        let reserve = (descriptors / 4).clamp(*RESERVE.start(), *RESERVE.end());
        // With fewer descriptors than the reserve nothing works well, but a few connections work.
        let max = descriptors.saturating_sub(reserve).max(descriptors / 4).max(1);
        Arc::new(ConnectionLimit { max, open: AtomicU64::new(0), is_reached: AtomicBool::new(false) })
    }

    /// How many connections may be open.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// A permit for one more connection; `None` at the limit.
    pub fn acquire(self: &Arc<ConnectionLimit>) -> Option<ConnectionPermit> {
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        let permit = ConnectionPermit { limit: Arc::clone(self) };
        if open >= self.max {
            if !self.is_reached.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "{open} connections are open, as many as the limit of descriptors allows; others wait in the backlog; \
                     raise it with `ulimit -Hn`, or LimitNOFILE= in the unit of systemd"
                );
            }
            return None;
        }
        if open < self.max - self.max / FREE_AGAIN && self.is_reached.load(Ordering::Relaxed) {
            self.is_reached.store(false, Ordering::Relaxed);
        }
        Some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_for_files_and_upstreams() {
        let cases = [(1_048_576, 1_047_552), (1024, 768), (256, 192), (100, 36), (64, 16), (3, 1), (0, 1)];
        for (descriptors, max) in cases {
            assert_eq!(ConnectionLimit::of_descriptors(descriptors).max, max, "{descriptors}");
        }
    }

    #[test]
    fn the_limit_is_logged_again_only_after_some_permits_were_free() {
        let limit = ConnectionLimit::of_descriptors(1024);
        let is_reached = || limit.is_reached.load(Ordering::Relaxed);
        let mut permits: Vec<ConnectionPermit> = (0..768).map_while(|_| limit.acquire()).collect();
        assert!(permits.len() == 768 && !is_reached());
        assert!(limit.acquire().is_none() && limit.acquire().is_none() && is_reached());
        drop(permits.pop());
        permits.extend(limit.acquire());
        assert!(permits.len() == 768 && is_reached());
        permits.truncate(700);
        assert!(limit.acquire().is_some() && !is_reached());
        drop(permits);
        assert_eq!(limit.open.load(Ordering::Relaxed), 0);
    }
}
