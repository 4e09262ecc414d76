//! A worker that has just been forked.

use super::service::{Service, WorkerLimits};
use super::stderr::Stderr;
use howdah_channel::WorkerEnd;
use howdah_protocol::messages::prototype::WorkerScript;

/// All that the prototype gives to a worker.
pub struct Worker {
    /// Its end of the channel.
    pub end: &'static WorkerEnd,
    /// Its limits.
    pub limits: WorkerLimits,
    /// Where its standard error goes.
    pub stderr: &'static Stderr,
    /// The script that it runs; `None` is classic mode.
    pub script: Option<WorkerScript>,
}

// === impl Worker ===

impl Worker {
    /// It is ready for its first request.
    pub fn service(self) -> Service {
        Service::begin(self.end, self.limits, self.stderr)
    }
}
