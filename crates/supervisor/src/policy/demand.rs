//! What there is to do, and the workers that there are for it. Pure.

/// The workers of an application and the requests that wait for one, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Workers that have nothing to do.
    pub idle: usize,
    /// Workers that are being started.
    pub starting: usize,
    /// All workers, those two kinds included, without those that leave.
    pub all: usize,
    /// Requests that wait for a worker.
    pub waiting: usize,
}

// === impl Seen ===

impl Seen {
    /// Whether requests wait for a worker. Where one is idle, none does: what the router said is old, or it has not come to
    /// hand them out.
    pub fn queues(&self) -> bool {
        self.idle == 0 && self.waiting > 0
    }
}
