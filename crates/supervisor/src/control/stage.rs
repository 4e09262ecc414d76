//! The stages of the supervisor's life.

use std::time::Instant;

/// A stage.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// Applications and router are starting. A failure ends the supervisor.
    Booting,
    /// Everything is up, or is started again.
    Serving,
    /// The router finishes its requests, until this deadline.
    Draining(Instant),
    /// The workers exit, until this deadline.
    Stopping(Instant),
    /// Everything was killed. The supervisor waits for the deaths until this deadline.
    Killing(Instant),
}

// === impl Stage ===

impl Stage {
    /// When the stage has taken too long.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Stage::Booting | Stage::Serving => None,
            Stage::Draining(until) | Stage::Stopping(until) | Stage::Killing(until) => Some(until),
        }
    }

    /// Whether changes go on. Later, what a change had started exits with everything else.
    pub fn has_changes(self) -> bool {
        matches!(self, Stage::Booting | Stage::Serving)
    }
}
