//! The answer: all that changed from one result to another.

use super::changes::{Change, Judgement};
use super::conditions::Condition;

/// All changes from one result to another.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultsComparison {
    /// The answer in a sentence or two.
    pub headline: String,
    /// Limits of the answer, and how sure it is.
    pub notes: Vec<String>,
    /// Figure by figure, in the order of the later lab: by load, by stack, by metric.
    pub changes: Vec<Change>,
    /// Other differences, which may be the reason.
    pub conditions: Vec<Condition>,
}

// === impl ResultsComparison ===

impl ResultsComparison {
    /// The number of figures with this judgement.
    pub fn count(&self, judgement: Judgement) -> usize {
        self.changes.iter().filter(|change| change.judgement == judgement).count()
    }
}
