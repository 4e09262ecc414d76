//! `limits/memory` of a process that howdah cannot look into: how much it has grown since it was ready, once a second.

use crate::os::processes::process::Process;
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// The memory of a process since it was ready.
#[derive(Debug)]
pub struct MemoryWatch {
    process: Option<Process>,
    limit: u64,
    /// How much it had when it was ready, in bytes.
    base: u64,
    /// When it is looked at again; `None` after it has grown beyond the limit.
    next: Option<Instant>,
    has_grown: bool,
}

const INTERVAL: Duration = Duration::from_secs(1);

// === impl MemoryWatch ===

impl MemoryWatch {
    /// Begins with a process that is ready. `limit` is in bytes.
    pub fn begin(pid: Pid, limit: u64, now: Instant) -> MemoryWatch {
        let process = Process::find(pid);
        let base = process.and_then(Process::private_bytes).unwrap_or_default();
        MemoryWatch { process, limit, base, next: Some(now + INTERVAL), has_grown: false }
    }

    /// When [`Self::on_time`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Looks at the process if it is time.
    pub fn on_time(&mut self, now: Instant) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let bytes = self.process.and_then(Process::private_bytes).unwrap_or_default();
        self.has_grown = bytes.saturating_sub(self.base) > self.limit;
        self.next = (!self.has_grown).then_some(now + INTERVAL);
    }

    /// Whether it has grown beyond its limit, once.
    pub fn take_has_grown(&mut self) -> bool {
        std::mem::take(&mut self.has_grown)
    }
}
