//! The last step of `serve` and `run`: this process becomes the supervisor.

use howdah_supervisor::Start;

/// Replaces this process with the supervisor. Returns only if that fails.
///
/// # Errors
/// The reason.
pub fn become_supervisor(start: &Start) -> Result<(), String> {
    Err(format!("cannot start the supervisor: {}", start.become_supervisor()))
}
