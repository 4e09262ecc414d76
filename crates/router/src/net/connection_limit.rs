//! The limit of connections: each takes a descriptor, and their files, upstreams and bodies take some, too.
//!
//! At the limit, new connections stay in the backlog, and idle ones whose requests were answered are closed. The beginning
//! of that state is logged, once.
//!
//! A connection of HTTP/2 or HTTP/3 may answer a hundred requests at the same time, each with a file, an upstream or a body, of a
//! client that reads nothing. Therefore each request beside the first of its connection counts, too, and all of them may have
//! half of the descriptors. A connection takes no more than a part of what is free there, so that some that are greedy leave
//! room for others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limit that all threads share.
#[derive(Debug)]
pub struct ConnectionLimit {
    /// How many connections may be open.
    max: u64,
    /// How many are open, together with the descriptors of their requests beside the first ones.
    open: AtomicU64,
    /// The descriptors of these requests.
    of_requests: AtomicU64,
    is_reached: AtomicBool,
}

/// The right of a connection to be open. It ends when this is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
}

/// The right of a request to have descriptors beside those of others on its connection. It ends when this is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    /// `None` for the only request of a connection: as with HTTP/1, it does not count.
    limit: Option<Arc<ConnectionLimit>>,
}

/// Descriptors that are kept for other things than connections: a quarter, within these bounds.
const RESERVE: std::ops::RangeInclusive<u64> = 64..=1024;
/// The descriptors of a request: a file or a connection, and perhaps a body on the disk.
const OF_REQUEST: u64 = 2;
/// A connection takes this part of the free descriptors of requests, at most.
const PART_OF_FREE: u64 = 4;
/// The limit counts as reached until one in this many permits is free again.
const FREE_AGAIN: u64 = 16;

// === impl ConnectionLimit ===

impl ConnectionLimit {
    /// The limit for this number of descriptors.
    pub fn of_descriptors(descriptors: u64) -> Arc<ConnectionLimit> {
        let reserve = (descriptors / 4).clamp(*RESERVE.start(), *RESERVE.end());
        // With fewer descriptors than the reserve nothing works well, but a few connections work.
        let max = descriptors.saturating_sub(reserve).max(descriptors / 4).max(1);
        Arc::new(ConnectionLimit { max, open: 0.into(), of_requests: 0.into(), is_reached: false.into() })
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
                let connections = open.saturating_sub(self.of_requests.load(Ordering::Relaxed));
                tracing::warn!(
                    "{connections} connections are open, as many as the limit of descriptors allows; others wait in the backlog; \
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

    /// A permit for one more request of a connection that has this number of them; `None` if it must be refused.
    pub fn acquire_request(self: &Arc<ConnectionLimit>, others: u64) -> Option<RequestPermit> {
        if others == 0 {
            return Some(RequestPermit { limit: None });
        }
        self.open.fetch_add(OF_REQUEST, Ordering::Relaxed);
        let taken = self.of_requests.fetch_add(OF_REQUEST, Ordering::Relaxed);
        let permit = RequestPermit { limit: Some(Arc::clone(self)) };
        let free = (self.max / 2).saturating_sub(taken);
        (others.saturating_mul(OF_REQUEST) <= free / PART_OF_FREE).then_some(permit)
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            limit.of_requests.fetch_sub(OF_REQUEST, Ordering::Relaxed);
            limit.open.fetch_sub(OF_REQUEST, Ordering::Relaxed);
        }
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
    fn requests_of_greedy_connections_leave_descriptors_to_others() {
        let limit = ConnectionLimit::of_descriptors(4096);
        let mut permits = Vec::new();
        let mut requests = |most: u64| {
            let before = permits.len();
            permits.extend((0..most).map_while(|others| limit.acquire_request(others)));
            permits.len() - before
        };
        assert_eq!(requests(128), 128, "a usual client");
        let greedy: Vec<_> = (0..100).map(|_| requests(128)).collect();
        assert!(greedy[0] == 128 && greedy[99] < 8, "{greedy:?}");
        assert_eq!(requests(1), 1);
        let open: Vec<_> = (0..10_000).map_while(|_| limit.acquire()).collect();
        assert!(open.len() >= 3072 / 2, "half of them are for connections: {}", open.len());
        drop((permits, open));
        assert_eq!((limit.open.load(Ordering::Relaxed), limit.of_requests.load(Ordering::Relaxed)), (0, 0));
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
