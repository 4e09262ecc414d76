//! Log lines about clients whose bytes are no valid request.

use crate::net::peer::Peer;
use crate::report::OncePerMinute;
use http::StatusCode;
use std::sync::LazyLock;

/// Logs the reason of an answer to bytes that are no request, once a minute for each client.
pub fn log_rejection(peer: &Peer, status: StatusCode, reason: &str) {
    if is_due(peer, reason) {
        let client = &peer.remote_addr;
        tracing::warn!(%client, reason, "a request that is not valid: answered {}", status.as_u16());
    }
}

/// Logs the reason why a connection was closed, once a minute for each client.
pub fn log_closed(peer: &Peer, reason: &str) {
    if is_due(peer, reason) {
        let client = &peer.remote_addr;
        tracing::warn!(%client, reason, "a connection was closed; its client may open another one");
    }
}

/// The resource of which the open requests of a connection take too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Memory.
    Memory,
    /// Descriptors.
    Descriptors,
}

/// Logs that a request was refused because of the others of its connection, once a minute for each client.
pub fn log_refused(peer: &Peer, excess: Excess) {
    let excess = match excess {
        Excess::Memory => "too much memory",
        Excess::Descriptors => "too many descriptors",
    };
    if is_due(peer, excess) {
        let client = &peer.remote_addr;
        tracing::warn!(%client, "the open requests of a connection take {excess}: refusing another one; its client may send it again");
    }
}

fn is_due(peer: &Peer, reason: &str) -> bool {
    static REJECTIONS: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);
    REJECTIONS.is_due((&peer.remote_addr, reason))
}
