//! `retry`: whether a request whose worker died is run again.

use crate::error::Error;
use crate::read::node::Node;

/// Whether a request is run again if its worker died before the response began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// The request is answered 502.
    #[default]
    Never,
    /// GET and HEAD without a body are run once more.
    Idempotent,
}

// === impl Retry ===

impl Retry {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("never", Self::Never), ("idempotent", Self::Idempotent)])
    }
}
