//! The counters of opcache, which begin again from 0 when opcache restarts. Its workers report them, and may report anything:
//! a sum never shrinks, and counts for its own application only.

use crate::generation::tally::OpcacheTally;
use howdah_channel::opcache::OpcacheNumbers;
use std::cell::Cell;

/// The sums of a generation.
#[derive(Debug, Default)]
pub struct OpcacheCounter {
    last: Cell<OpcacheNumbers>,
    sums: Cell<OpcacheTally>,
}

// === impl OpcacheCounter ===

impl OpcacheCounter {
    /// The sums, with the numbers of the last report.
    pub fn update(&self, report: Option<OpcacheNumbers>) -> OpcacheTally {
        let mut sums = self.sums.get();
        if let Some(report) = report {
            let last = self.last.replace(report);
            let grown = |sum: &mut u64, last: u64, now: u64| {
                *sum = sum.saturating_add(if now >= last { now - last } else { now });
            };
            grown(&mut sums.hits, last.hits, report.hits);
            grown(&mut sums.misses, last.misses, report.misses);
            grown(&mut sums.restarts, last.restarts, report.restarts);
            self.sums.set(sums);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_of_opcache_takes_nothing_from_the_sums() {
        let counter = OpcacheCounter::default();
        let report = |hits, restarts| Some(OpcacheNumbers { hits, restarts, ..OpcacheNumbers::default() });
        let sums = |report| {
            let OpcacheTally { hits, restarts, .. } = counter.update(report);
            (hits, restarts)
        };
        assert_eq!(sums(None), (0, 0));
        assert_eq!(sums(report(10, 0)), (10, 0));
        assert_eq!(sums(report(10, 0)), (10, 0));
        assert_eq!(sums(report(3, 1)), (13, 1));
        assert_eq!(sums(None), (13, 1));
        assert_eq!(sums(report(u64::MAX, 1)), (u64::MAX, 1), "a hostile worker");
        assert_eq!(sums(report(5, 0)), (u64::MAX, 1));
    }
}
