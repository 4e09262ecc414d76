//! A request whose client leaves is cancelled.

use super::generation_port::GenerationPort;
use super::running::RunningRequest;
use std::rc::Rc;

/// A request in PHP whose response a client awaits. Dropping it before the end cancels the request, or drops the rest of
/// its response; after the end, dropping it does nothing.
pub struct CancelOnDrop {
    /// The port that the request went through.
    pub port: Rc<GenerationPort>,
    /// The request.
    pub running: Rc<RunningRequest>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.port.cancel(&self.running);
    }
}
