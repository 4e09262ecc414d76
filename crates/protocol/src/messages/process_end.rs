//! How a process ended: with an exit code, or by a signal.

use nix::sys::signal::Signal;
use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

/// The exit code of a worker that can't notify the router, because a script has closed its descriptors: EX_IOERR of
/// sysexits.h.
pub const EXIT_ROUTER_UNREACHABLE: i32 = 74;

/// The exit code of a worker whose worker script ended before it asked for a request: EX_CONFIG of sysexits.h.
pub const EXIT_BOOT_FAILED: i32 = 78;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessEnd {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

// === impl ProcessEnd ===

impl ProcessEnd {
    /// From the status of wait(2); `None` if the process lives. Real-time signals count, although they have no names.
    pub fn of(status: WaitStatus) -> Option<ProcessEnd> {
        status.exit_status().map(ProcessEnd::Code).or_else(|| status.terminating_signal().map(ProcessEnd::Signal))
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProcessEnd::Code(code) => write!(f, "exited with code {code}"),
            ProcessEnd::Signal(signal) => {
                write!(f, "was killed by signal {signal}")?;
                Signal::try_from(*signal).map_or(Ok(()), |named| write!(f, " ({})", named.as_str()))
            }
        }
    }
}
