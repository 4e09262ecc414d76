//! A worker that has just been forked.

use super::service::{Service, WorkerLimits};
use super::stderr::Stderr;
use howdah_channel::WorkerEnd;

/// All that the prototype gives to a worker.
pub struct Worker {
    /// Its end of the channel.
    pub end: &'static WorkerEnd,
    /// Its limits.
    pub limits: WorkerLimits,
    /// Where its standard error goes.
    pub stderr: &'static Stderr,
}

// === impl Worker ===

impl Worker {
    /// It is ready for its first request.
    pub fn service(self) -> Service {
        Service::begin(self.end, self.limits, self.stderr)
    }
}
