//! The users at the other ends of TCP connections: looked up on another thread, because the kernel's tables may be long.

use howdah_blocking_work::Pool;
use howdah_protocol::sockets::tcp_peer;
use std::io;
use std::net::SocketAddr;

static LOOK_UPS: Pool = Pool::new("tcp peers");

/// Starts the thread that stays, so that a lack of tasks delays look-ups, and does not prevent them.
///
/// # Errors
/// When it cannot be started.
pub fn start() -> io::Result<()> {
    LOOK_UPS.start()
}

/// The user whose process holds the socket `peer` that is connected to our socket `own`; `None` if that is not known.
pub async fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    match LOOK_UPS.spawn(move || tcp_peer::user_of(peer, own)).await {
        Ok(user) => user,
        Err(failure) => {
            tracing::warn!(%peer, "cannot look up the user of a connection: {failure}");
            None
        }
    }
}
