//! Where the supervisor is in its life.

use std::time::Instant;

/// Where the supervisor is in its life.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// Applications and router are starting; a failure ends the supervisor.
    Booting,
    /// Everything is up, or is started again.
    Serving,
    /// The router finishes its requests, until then at most.
    Draining(Instant),
    /// The workers end, until then at most.
    Stopping(Instant),
    /// Everything was killed; until then its death is awaited.
    Killing(Instant),
}

// === impl Stage ===

impl Stage {
    /// When it has taken too long.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Stage::Booting | Stage::Serving => None,
            Stage::Draining(until) | Stage::Stopping(until) | Stage::Killing(until) => Some(until),
        }
    }
}
