//! The CPU time of a thread, for tests that bound the time of a computation: other processes must not make them fail.

use std::time::Duration;

/// Measures the CPU time of the thread that created it, to the kernel's tick.
pub struct CpuClock(Duration);

// === impl CpuClock ===

impl CpuClock {
    /// Starts at the present CPU time.
    pub fn start() -> Self {
        Self(used())
    }

    /// The CPU time since the start.
    pub fn elapsed(&self) -> Duration {
        used() - self.0
    }
}

fn used() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts CPU time");
    let nanoseconds = statistics.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("schedstat begins with the CPU time"))
}
