//! A request whose client leaves is taken back.

use super::generation_port::GenerationPort;
use super::running::RunningRequest;
use std::rc::Rc;

/// A request in PHP whose response a client awaits. Dropping it before the end cancels the request, or drops the rest of
/// its response; after the end, dropping it does nothing.
pub struct AbandonOnDrop {
    /// The port that the request went through.
    pub port: Rc<GenerationPort>,
    /// The request.
    pub running: Rc<RunningRequest>,
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.port.abandon(&self.running);
    }
}
