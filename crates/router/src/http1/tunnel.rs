//! A connection that has changed its protocol, to a WebSocket say: bytes go both ways, and howdah does not look at them.
//!
//! It counts as an active connection. It ends when either side ends it, when nothing has gone either way for long, and
//! some time after its listener went or howdah was told to end: [`Clock`] knows when.

use crate::http1::connection::Clock;
use crate::net::socket::Watched;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::copy_bidirectional;

/// How long neither side may say anything.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long it may go on when it is to end.
pub const GRACE: Duration = Duration::from_secs(10);

/// Copies until it ends.
pub async fn run(clock: &Clock, mut client: Watched, upstream: Upgraded) {
    let mut upstream = TokioIo::new(upstream);
    tokio::select! {
        result = copy_bidirectional(&mut client, &mut upstream) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a tunnel ended early");
            }
        }
        () = clock.until_overdue() => {
            tracing::debug!("a tunnel was ended");
            client.say_goodbye().await;
        }
    }
}
