//! The numbers of opcache, which all workers of a generation share. One of them enters them, at most once a second.
//!
//! They are words of shared memory with relaxed stores: a reader may see half of a report. Hostile PHP code can write any
//! value here, and so can a script that replaces PHP's functions. Therefore the numbers decide nothing.

use crate::memory::layout::opcache as offset;
use crate::sync::{AtomicU64, Ordering};
use crate::worker_record::account::nanoseconds;
use std::time::Duration;

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpcacheNumbers {
    /// Bytes of its memory with scripts.
    pub used_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes of scripts that were replaced.
    pub wasted_bytes: u64,
    /// Scripts in its memory.
    pub scripts: u64,
    /// How often a script was found there, since its last restart.
    pub hits: u64,
    /// How often one had to be compiled, since its last restart.
    pub misses: u64,
    /// How often it has restarted, for want of memory or of keys, or on demand.
    pub restarts: u64,
}

/// The words of a channel.
#[derive(Debug)]
pub(crate) struct OpcacheWords<'m> {
    words: &'m [AtomicU64],
}

/// The time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);

// === impl OpcacheWords ===

impl<'m> OpcacheWords<'m> {
    pub fn new(words: &'m [AtomicU64]) -> OpcacheWords<'m> {
        OpcacheWords { words }
    }

    /// Whether a report is due. It is due for one worker only.
    pub fn is_due(&self, now: Duration) -> bool {
        let (word, now) = (&self.words[offset::REPORTED_AT / 8], nanoseconds(now).max(1));
        let last = word.load(Ordering::Relaxed);
        let is_due = last == 0 || now.wrapping_sub(last) >= nanoseconds(INTERVAL);
        is_due && word.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn enter(&self, numbers: &OpcacheNumbers) {
        let OpcacheNumbers { used_bytes, free_bytes, wasted_bytes, scripts, hits, misses, restarts } = *numbers;
        let all = [used_bytes, free_bytes, wasted_bytes, scripts, hits, misses, restarts];
        for (word, number) in self.words[offset::NUMBERS / 8..].iter().zip(all) {
            word.store(number, Ordering::Relaxed);
        }
    }

    /// When the last report was due, and its numbers; `None` before the first one. Without opcache, no report has numbers.
    pub fn read(&self) -> Option<(Duration, OpcacheNumbers)> {
        let at = |n: usize| self.words[offset::NUMBERS / 8 + n].load(Ordering::Relaxed);
        let (used_bytes, free_bytes, wasted_bytes) = (at(0), at(1), at(2));
        if used_bytes | free_bytes | wasted_bytes == 0 {
            return None;
        }
        let (scripts, hits, misses, restarts) = (at(3), at(4), at(5), at(6));
        let reported_at = Duration::from_nanos(self.words[offset::REPORTED_AT / 8].load(Ordering::Relaxed));
        Some((reported_at, OpcacheNumbers { used_bytes, free_bytes, wasted_bytes, scripts, hits, misses, restarts }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_reports_in_each_interval() {
        let words: Vec<_> = (0..offset::BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        let opcache = OpcacheWords::new(&words);
        let at = Duration::from_millis;
        assert_eq!(opcache.read(), None);
        assert_eq!(
            [5000, 5001, 5999, 6000, 6001].map(|now| opcache.is_due(at(now))),
            [true, false, false, true, false]
        );
        assert_eq!(opcache.read(), None, "a worker that may not read them has entered nothing");
        let numbers = OpcacheNumbers {
            used_bytes: 1,
            free_bytes: 2,
            wasted_bytes: 3,
            scripts: 4,
            hits: 5,
            misses: 6,
            restarts: 7,
        };
        opcache.enter(&numbers);
        assert_eq!(opcache.read(), Some((at(6000), numbers)));
        words[offset::REPORTED_AT / 8].store(u64::MAX, Ordering::Relaxed);
        assert!(opcache.is_due(at(7000)), "a hostile worker cannot stop the reports of others");
    }
}
