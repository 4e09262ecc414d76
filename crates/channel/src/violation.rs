//! A broken rule of the channel. Every end reports it as an error value; none panics on it.

use std::fmt;

/// A worker wrote where it may not: some word of the channel holds a value that no rule allows. Contains the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a worker broke the channel's rules: {}", self.0)
    }
}

impl std::error::Error for Violation {}
