//! What the readers of a configuration know besides the value that they read: the names that it may refer to.

use std::collections::BTreeSet;

/// What a configuration may refer to that is not in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The names of the certificates that are stored; `None` if that is not known, so that any name will do.
    pub certificates: Option<&'a BTreeSet<String>>,
}

/// What is known while a configuration is read.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    pub context: Context<'a>,
}
