//! How much of its responses QUIC keeps for a connection until the client has confirmed it.
//!
//! A client that confirms nothing makes its connection keep as much as its window allows, and one socket of a client may have
//! any number of connections. Each may keep [`LEAST_SEND_BYTES`]; what a connection with requests may keep beyond that, up to
//! [`MOST`], is a part of [`SHARED`], which all connections of the process have together: an eighth of what is free.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that a connection may keep while it has requests.
#[derive(Debug)]
pub struct SendGrant {
    bytes: u64,
    /// The bytes that all connections of the process may keep, beyond the least.
    shared: &'static AtomicU64,
}

/// Every connection may keep this much. Over 100 ms, this is 640 KB a second.
pub const LEAST_SEND_BYTES: u64 = 64 * 1024;
/// No connection keeps more. Over 100 ms, this is 10 MB a second.
const MOST: u64 = 1024 * 1024;
/// The most that all connections together keep beyond the least.
const SHARED: u64 = 256 * 1024 * 1024;
const PART_OF_FREE: u64 = 8;

// === impl SendGrant ===

impl SendGrant {
    /// The bytes that a connection may keep whose requests begin now.
    pub fn take() -> SendGrant {
        static GRANTED: AtomicU64 = AtomicU64::new(0);
        SendGrant::sharing(&GRANTED)
    }

    fn sharing(shared: &'static AtomicU64) -> SendGrant {
        let free = SHARED.saturating_sub(shared.load(Ordering::Relaxed));
        let bytes = (free / PART_OF_FREE).clamp(LEAST_SEND_BYTES, MOST);
        shared.fetch_add(bytes - LEAST_SEND_BYTES, Ordering::Relaxed);
        SendGrant { bytes, shared }
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for SendGrant {
    fn drop(&mut self) {
        self.shared.fetch_sub(self.bytes - LEAST_SEND_BYTES, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_connections_keep_much_and_many_keep_little() {
        static GRANTED: AtomicU64 = AtomicU64::new(0);
        let grants: Vec<_> = (0..10_000).map(|_| SendGrant::sharing(&GRANTED)).collect();
        assert_eq!((grants[0].bytes(), grants[200].bytes()), (MOST, MOST));
        assert!(grants[9999].bytes() < LEAST_SEND_BYTES + 1024, "{}", grants[9999].bytes());
        assert!(grants.iter().map(|grant| grant.bytes() - LEAST_SEND_BYTES).sum::<u64>() <= SHARED);
        drop(grants);
        assert_eq!(GRANTED.load(Ordering::Relaxed), 0);
        assert_eq!(SendGrant::sharing(&GRANTED).bytes(), MOST);
    }
}
