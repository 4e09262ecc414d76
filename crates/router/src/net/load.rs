//! The load of a thread, in counters that other threads may read.

use howdah_protocol::messages::router::RouterLoad;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a thread.
#[derive(Debug, Default)]
pub struct Load {
    accepted: AtomicU64,
    closed: AtomicU64,
    active: AtomicU64,
    requests: AtomicU64,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub struct OpenConnection(Arc<Load>);

// === impl Load ===

impl Load {
    /// How many connections are open.
    pub fn connections(&self) -> u64 {
        // The two counters are read at two moments: the difference may be off by the changes in between.
        self.accepted.load(Ordering::Relaxed).saturating_sub(self.closed.load(Ordering::Relaxed))
    }

    /// A connection was accepted.
    pub fn connection_began(self: &Arc<Load>) -> OpenConnection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(self))
    }

    /// A request began on a connection.
    pub fn request_began(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Another request began on a connection that answers one.
    pub fn request_joined(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection has become a tunnel.
    pub fn tunnel_began(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// The request, or the tunnel, ended.
    pub fn request_ended(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds the counters to a report.
    pub fn add_to(&self, report: &mut RouterLoad) {
        report.connections_accepted += self.accepted.load(Ordering::Relaxed);
        report.connections_closed += self.closed.load(Ordering::Relaxed);
        report.connections_active += self.active.load(Ordering::Relaxed);
        report.requests_total += self.requests.load(Ordering::Relaxed);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}
