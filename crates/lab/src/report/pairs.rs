//! Looks up the comparison of two stacks, in the direction that the reader asks for.

use crate::results::{Metric, Results};

/// How a stack differs from another one under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairDifference {
    /// The stack's value divided by the other's; for shares, the difference.
    pub ratio: f64,
    /// The interval of the ratio; `None` with a single round.
    pub interval: Option<(f64, f64)>,
    /// Whether the stack is better; `None` if the difference may be noise.
    pub is_better: Option<bool>,
}

/// The difference of `stack` from `other`; `None` if the two were not compared.
pub fn difference(results: &Results, load: &str, metric: Metric, stack: &str, other: &str) -> Option<PairDifference> {
    let of_load = || results.comparisons.iter().filter(|c| c.load == load && c.metric == metric);
    let is_better = |better: &Option<String>| better.as_deref().map(|better| better == stack);
    if let Some(found) = of_load().find(|c| c.stack == stack && c.baseline == other) {
        let is_better = is_better(&found.better).filter(|_| found.significant);
        return Some(PairDifference { ratio: found.ratio, interval: found.interval, is_better });
    }
    let found = of_load().find(|c| c.stack == other && c.baseline == stack)?;
    let invert = |ratio: f64| if metric.is_share() { -ratio } else { 1.0 / ratio };
    Some(PairDifference {
        ratio: invert(found.ratio),
        interval: found.interval.map(|(low, high)| (invert(high), invert(low))),
        is_better: is_better(&found.better).filter(|_| found.significant),
    })
}
