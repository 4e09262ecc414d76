//! Why an option of an application cannot be planned on this machine.

/// An option, and its problem. The caller knows the application, and puts its path before the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// The path of the option below the application, as in `/isolation/rootfs`.
    pub option: String,
    /// A sentence: the problem, and what to do.
    pub problem: String,
}

// === impl OptionError ===

impl OptionError {
    /// An error of this option.
    pub fn new(option: impl Into<String>, problem: impl Into<String>) -> OptionError {
        OptionError { option: option.into(), problem: problem.into() }
    }
}
