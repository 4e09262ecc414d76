//! The scope of reading: names and certificates to which values may refer, warnings, and the count of expressions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use crate::error::Error;
use crate::read::destination::PassNames;
use crate::read::node::Node;

/// Compiling one of the largest expressions takes a millisecond, and reading a configuration must take only seconds.
const MAX_REGULAR_EXPRESSIONS: usize = 4_000;

/// More warnings would only repeat themselves.
const MAX_WARNINGS: usize = 100;

/// Names outside of a configuration to which it may refer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The names of the stored certificates; `None`: names of certificates are not checked.
    pub certificates: Option<&'a CertificateNames>,
}

/// The names of the stored certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// Chains with a private key.
    pub with_key: BTreeSet<String>,
    /// Certificates of authorities, without a key.
    pub authorities: BTreeSet<String>,
}

/// The state while a configuration is read.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    pub context: Context<'a>,
    /// The names to which a `pass` may lead.
    pub names: PassNames,
    warnings: RefCell<Vec<String>>,
    regular_expressions: Cell<usize>,
    rate_limits: Cell<usize>,
    connection_limits: Cell<usize>,
}

// === impl Scope ===

impl<'a> Scope<'a> {
    pub fn new(context: Context<'a>) -> Self {
        Self { context, ..Self::default() }
    }

    /// Adds a warning about a valid value.
    pub fn warn(&self, node: &Node<'_>, warning: impl fmt::Display) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MAX_WARNINGS {
            warnings.push(format!("{node}: {warning}"));
        }
    }

    pub fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    /// The index of the next `rate_limit`.
    pub fn next_rate_limit(&self) -> usize {
        self.rate_limits.replace(self.rate_limits.get() + 1)
    }

    /// The index of the next `connection_limit`.
    pub fn next_connection_limit(&self) -> usize {
        self.connection_limits.replace(self.connection_limits.get() + 1)
    }

    /// Counts a regular expression. Too many of them are an error.
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
