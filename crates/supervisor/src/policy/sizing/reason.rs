//! The reason for the number of workers, for an operator.

use super::trial::Verdict;
use std::fmt;
use std::time::Duration;

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// How many there are.
    pub workers: usize,
    /// How many processors they have.
    pub cores: f64,
    /// How much of a request is waiting for others than the processors, from 0 to 1.
    pub waiting_share: Option<f64>,
    /// The last trial of another number, and how long ago it ended.
    pub trial: Option<(Verdict, Duration)>,
    /// Set if more workers are kept than requests keep busy now: the largest useful number, and how long ago that was.
    pub kept: Option<(usize, Duration)>,
    /// How many the memory has room for.
    pub memory_allows: Option<usize>,
    /// The largest number of workers.
    pub max: usize,
}

impl fmt::Display for Reason {
    /// `12 workers: 2 cores, 87 % of a request is waiting, memory allows 140`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |count: f64, word| format!("{count} {word}{}", if count == 1.0 { "" } else { "s" });
        write!(f, "{}: {}", number(self.workers as f64, "worker"), number(self.cores, "core"))?;
        match self.waiting_share {
            Some(share) => write!(f, ", {:.0} % of a request is waiting", share * 100.0)?,
            None => write!(f, ", too few requests to measure what they wait for")?,
        }
        if let Some((Verdict { before, tried, .. }, ago)) = self.trial {
            let (ago, rate) = (ago.as_secs(), before.per_second);
            write!(f, ", tried {ago} s ago: {rate:.0} requests/s with {} workers", before.workers)?;
            write!(f, ", {:.0} with {}", tried.per_second, tried.workers)?;
        }
        if let Some((count, ago)) = self.kept {
            write!(f, ", {count} were useful {} s ago", ago.as_secs())?;
        }
        match self.memory_allows {
            Some(allows) if allows < self.max => write!(f, ", memory allows {allows}"),
            _ => write!(f, ", at most {}", self.max),
        }
    }
}
