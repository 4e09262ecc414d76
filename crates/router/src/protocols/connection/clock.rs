//! A connection as its thread sees it.

use howdah_config::Http;
use std::time::Instant;

/// The clock of a connection: the thread checks it several times a second.
pub trait ConnectionClock {
    /// The listener that accepted the connection.
    fn listener(&self) -> u64;

    /// Ends the connection, or a part of it, if its time is over.
    fn check(&self, now: Instant, limits: &Http);

    /// Since when the connection waits for another request, if it does.
    fn idle_since(&self) -> Option<Instant>;

    /// Ends the connection after its current requests.
    fn drain(&self);

    /// Whether the connection is one of QUIC.
    fn is_quic(&self) -> bool {
        false
    }
}
