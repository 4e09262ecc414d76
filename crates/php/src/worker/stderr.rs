//! Where standard error goes: to the application's log. While a request of a warm-up runs it goes to the supervisor, which
//! copies it to that log and keeps the end, for the error of a warm-up that fails.

use std::io;
use std::os::fd::OwnedFd;

/// Both destinations.
pub struct Stderr {
    to_supervisor: OwnedFd,
    to_log: OwnedFd,
}

// === impl Stderr ===

impl Stderr {
    /// Switches standard error from the supervisor to the log.
    ///
    /// # Errors
    /// When the process has no free descriptor.
    pub fn begin(to_log: OwnedFd) -> io::Result<Stderr> {
        let to_supervisor = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
        let stderr = Stderr { to_supervisor, to_log };
        rustix::stdio::dup2_stderr(&stderr.to_log)?;
        Ok(stderr)
    }

    /// Calls `act` while standard error goes to the supervisor.
    pub fn with_supervisor<T>(&self, act: impl FnOnce() -> T) -> T {
        // If this fails, the log gets the messages.
        let _ = rustix::stdio::dup2_stderr(&self.to_supervisor);
        let result = act();
        let _ = rustix::stdio::dup2_stderr(&self.to_log);
        result
    }
}
