//! `retry`: what becomes of a request whose worker died.

use crate::error::Error;
use crate::read::node::Node;

/// Whether a request whose worker died before it had answered anything is run once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// It is answered 502.
    #[default]
    Never,
    /// One that may be run twice is: GET and HEAD, without a body.
    Idempotent,
}

// === impl Retry ===

impl Retry {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("never", Self::Never), ("idempotent", Self::Idempotent)])
    }
}
