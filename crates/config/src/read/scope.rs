//! What the readers of a configuration know besides the value that they read: the names that it may refer to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use crate::error::Error;
use crate::read::destination::PassNames;
use crate::read::node::Node;

/// Compiling one of the greatest expressions takes a millisecond; a configuration must be read within seconds.
const MAX_REGULAR_EXPRESSIONS: usize = 4_000;

/// A configuration that repeats one thing many times need not be told each time.
const MAX_WARNINGS: usize = 100;

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
    /// What a `pass` may name.
    pub names: PassNames,
    warnings: RefCell<Vec<String>>,
    regular_expressions: Cell<usize>,
}

// === impl Scope ===

impl<'a> Scope<'a> {
    pub fn new(context: Context<'a>) -> Self {
        Self { context, ..Self::default() }
    }

    /// What is worth knowing about a value that is right.
    pub fn warn(&self, node: &Node<'_>, warning: impl fmt::Display) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_WARNINGS {
            warnings.push(format!("{node}: {warning}"));
        }
    }

    pub fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    /// An error if there are too many.
    pub fn count_regular_expression(&self, node: &Node<'_>) -> Result<(), Error> {
        let count = self.regular_expressions.get() + 1;
        self.regular_expressions.set(count);
        if count > MAX_REGULAR_EXPRESSIONS {
            let problem = format!("there are more than {MAX_REGULAR_EXPRESSIONS} regular expressions; use * wildcards");
            return Err(node.error(problem));
        }
        Ok(())
    }
}
