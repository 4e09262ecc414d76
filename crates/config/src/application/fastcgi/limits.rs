//! `limits` of a FastCGI application: how long a request may take or wait.

use crate::application::limits::{self as process_limits, Limits};
use crate::error::Error;
use crate::read::node::{Node, Options};
use std::time::Duration;

pub(crate) const OPTIONS: Options = Options { known: &["timeout", "queue_timeout"], unsupported: &[] };

/// The limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastCgiLimits {
    /// The time after which a running request is answered 504, and its connection is closed; `None`: no limit.
    pub timeout: Option<Duration>,
    /// The time that a request may wait for a connection before it is answered 503.
    pub queue_timeout: Duration,
}

// === impl FastCgiLimits ===

impl FastCgiLimits {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        for (name, advice) in [("requests", "pm.max_requests"), ("memory", "pm.max_requests")] {
            if let Some(option) = node.member(name).filter(|_| process_limits::OPTIONS.known.contains(&name)) {
                return Err(option.error(format_args!(
                    "an application of the type \"fastcgi\" does not have it; write {advice} into FPM's pool"
                )));
            }
        }
        node.object(&OPTIONS)?;
        let Limits { timeout, queue_timeout, .. } = Limits::read(node)?;
        Ok(Self { timeout, queue_timeout })
    }
}

impl Default for FastCgiLimits {
    fn default() -> Self {
        let Limits { timeout, queue_timeout, .. } = Limits::default();
        Self { timeout, queue_timeout }
    }
}
