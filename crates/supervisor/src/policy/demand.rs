//! The requests that wait, and the workers that could take them. Pure.

/// The workers of an application and the requests that wait for one, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Idle workers.
    pub idle: usize,
    /// Workers that are being started.
    pub starting: usize,
    /// All workers, idle and starting ones included, without those that leave.
    pub all: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
}

// === impl Demand ===

impl Demand {
    /// Whether requests wait for a worker. If a worker is idle, none does: the router's report is old, or the worker
    /// has not taken its request yet.
    pub fn has_queue(&self) -> bool {
        self.idle == 0 && self.waiting > 0
    }
}
