//! Where standard error goes: to the application's log. While a request of a warm-up runs, or a worker script boots, it
//! goes to the supervisor, which copies it to that log and keeps the end, for the error if that fails.

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

    /// From now on standard error goes to the supervisor. If this fails, the log gets the messages.
    pub fn to_supervisor(&self) {
        let _ = rustix::stdio::dup2_stderr(&self.to_supervisor);
    }

    /// From now on standard error goes to the log.
    pub fn to_log(&self) {
        let _ = rustix::stdio::dup2_stderr(&self.to_log);
    }
}
