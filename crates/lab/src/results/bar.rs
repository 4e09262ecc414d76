//! A bar: what a lab promises of a stack, and whether it was met.

use serde::{Deserialize, Serialize};

/// A bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The promise: `hello-100: howdah: at least 2.5 times the requests_per_second of nginx-fpm`.
    pub promise: String,
    /// The measured value, in words; the reason for a missing one.
    pub measured: String,
    /// Whether it is met; `None` if it was not measured.
    pub met: Option<bool>,
    /// Whether it may stay without a measurement, as its stacks are not installed everywhere.
    pub optional: bool,
}

// === impl Bar ===

impl Bar {
    /// Whether a lab with this bar has failed.
    pub fn is_failure(&self) -> bool {
        self.met != Some(true) && !(self.optional && self.met.is_none())
    }
}
