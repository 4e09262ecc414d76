//! A request that the script of async mode holds: it may be answered, or not.

use crate::sapi::SapiRequest;
use crate::worker::request::RequestBuffers;
use howdah_channel::account::Current;
use howdah_channel::{Claim, Violation};
use std::time::Duration;

/// A request. PHP has its number until it frees its object.
pub struct Held {
    /// `None` when it is answered, or given up.
    pub claim: Option<Claim<'static>>,
    /// For PHP. Its pointers point into `buffers`.
    pub request: SapiRequest,
    pub buffers: RequestBuffers,
    /// Its name and its start.
    pub current: Current,
    /// The head of the response is written.
    pub has_begun: bool,
    /// It has taken longer than `limits/timeout`: the script keeps it, and no client waits.
    pub is_overdue: bool,
}

// === impl Held ===

impl Held {
    /// The claimed request.
    ///
    /// # Errors
    /// When another worker has overwritten it.
    pub fn new(mut claim: Claim<'static>, began: Duration) -> Result<Held, Violation> {
        let mut buffers = RequestBuffers::default();
        buffers.read(&claim)?;
        let request = buffers.for_php(began);
        claim.set_began(began);
        let (slot, sequence) = claim.name();
        let current = Current { slot, sequence, began };
        Ok(Held { claim: Some(claim), request, buffers, current, has_begun: false, is_overdue: false })
    }

    /// Whether a client waits for the rest of the response.
    pub fn is_open(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.client_gone())
    }

    /// Writes part of the response; `false` when no client waits for it.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.claim.as_mut().is_some_and(|claim| claim.write(bytes).is_ok())
    }
}
