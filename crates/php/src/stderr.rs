//! Where standard error goes: to the application's log, and while a request of the warm-up runs to the supervisor, which
//! passes it on there, and keeps the end for who waits to hear why the warm-up failed.

use std::io;
use std::os::fd::OwnedFd;

/// Both ways.
pub struct Stderr {
    to_supervisor: OwnedFd,
    to_log: OwnedFd,
}

// === impl Stderr ===

impl Stderr {
    /// Standard error is the supervisor's until now, and this from now on.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn begin(to_log: OwnedFd) -> io::Result<Stderr> {
        let to_supervisor = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
        let stderr = Stderr { to_supervisor, to_log };
        rustix::stdio::dup2_stderr(&stderr.to_log)?;
        Ok(stderr)
    }

    /// Calls this with standard error going to the supervisor.
    pub fn heard<T>(&self, act: impl FnOnce() -> T) -> T {
        // If it cannot be done, the log has it all the same.
        let _ = rustix::stdio::dup2_stderr(&self.to_supervisor);
        let result = act();
        let _ = rustix::stdio::dup2_stderr(&self.to_log);
        result
    }
}
