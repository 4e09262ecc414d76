//! A connection that has changed its protocol, to a WebSocket for example: howdah copies bytes both ways, and does not
//! interpret them.
//!
//! A tunnel counts as an active connection. It ends when either side ends it, when no byte has gone either way for long,
//! and some time after its listener was removed or the router began to drain: the [`Clock`] decides.

use crate::protocols::connection::tunnel_server::TunnelServer;
use crate::protocols::http1::clock::Clock;
use crate::protocols::http1::watched::Watched;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Copies until the tunnel ends.
pub async fn run(clock: &Clock, mut client: Watched, upstream: Upgraded) {
    let mut upstream = TunnelServer::new(TokioIo::new(upstream), || clock.tunnel_side_ended());
    tokio::select! {
        result = copy_bidirectional(&mut client, &mut upstream) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a tunnel ended early");
            }
        }
        () = clock.until_overdue() => {
            tracing::debug!("a tunnel was ended");
            client.announce_end().await;
        }
    }
}
