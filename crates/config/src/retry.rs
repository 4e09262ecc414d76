//! `retry`: what becomes of a request whose worker died.

use crate::error::{Error, quoted};
use crate::node::Node;

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
        match node.string()?.as_str() {
            "never" => Ok(Self::Never),
            "idempotent" => Ok(Self::Idempotent),
            other => {
                let problem = format!("there is no {}; write \"never\" or \"idempotent\"", quoted(other));
                Err(node.error(problem))
            }
        }
    }
}
