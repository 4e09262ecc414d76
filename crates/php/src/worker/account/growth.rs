//! The growth of a worker since its start, for `limits/memory` and for a warning without this limit.
//!
//! A measurement is one system call, on a descriptor that stays open. It is made after each 16th request, and whenever
//! requests have run for a millisecond since the last one: a measurement takes a hundredth of that at most. Without /proc the
//! growth is unknown, and counts as 0.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A worker's own memory: resident, and shared with no process. Pages of the prototype count once the worker writes them.
#[derive(Debug)]
pub struct Growth {
    statm: Option<File>,
    /// Bytes of a page.
    page: u64,
    /// Bytes at the start, and at the last measurement.
    at_start: u64,
    now: u64,
    requests: u64,
    /// The time that requests ran since the last measurement.
    busy: Duration,
    /// The growth, in bytes, at which the next report is due.
    report_at: u64,
}

/// The requests between two measurements, at most.
const REQUESTS: u64 = 16;
/// The busy time between two measurements, at most.
const BUSY: Duration = Duration::from_millis(1);
/// The growth of the first report. The next one is due when the growth has doubled.
const FIRST_REPORT: u64 = 32 << 20;
/// A growth that is reported when a worker exits for another limit.
const LARGE: u64 = 8 << 20;

// === impl Growth ===

impl Growth {
    /// Makes the first measurement.
    pub fn begin() -> Growth {
        let page = rustix::param::page_size() as u64;
        let statm = File::open("/proc/self/statm").ok();
        let mut growth =
            Growth { statm, page, at_start: 0, now: 0, requests: 0, busy: Duration::ZERO, report_at: FIRST_REPORT };
        growth.at_start = growth.measure().unwrap_or(0);
        growth.now = growth.at_start;
        growth
    }

    /// A request has ended; measures if it is time.
    pub fn after_request(&mut self, ran: Duration) {
        self.requests += 1;
        self.busy += ran;
        if (self.busy >= BUSY || self.requests.is_multiple_of(REQUESTS))
            && let Some(bytes) = self.measure()
        {
            self.now = bytes;
            self.busy = Duration::ZERO;
        }
    }

    /// The growth at the last measurement, in bytes.
    pub fn bytes(&self) -> u64 {
        self.now.saturating_sub(self.at_start)
    }

    /// Whether an operator wants to know of it when the worker exits.
    pub fn is_large(&self) -> bool {
        self.bytes() >= LARGE
    }

    /// The text of a report, if one is due.
    pub fn report_if_doubled(&mut self) -> Option<String> {
        if self.bytes() < self.report_at {
            return None;
        }
        self.report_at = self.bytes().next_power_of_two().max(2 * self.report_at);
        Some(self.to_string())
    }

    fn measure(&self) -> Option<u64> {
        let mut text = [0; 128];
        let len = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
        let mut fields = std::str::from_utf8(&text[..len]).ok()?.split(' ').skip(1).map(str::parse::<u64>);
        let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
        Some(resident.saturating_sub(shared) * self.page)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grew {} MiB in {} requests", (self.bytes() + (1 << 19)) >> 20, self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_is_reported_at_32_mib_and_then_at_each_doubling() {
        let mut growth = Growth { at_start: 5 << 20, now: 5 << 20, requests: 3, ..Growth::begin() };
        let mut reported = Vec::new();
        for mib in (0..600).step_by(4) {
            growth.now = growth.at_start + (mib << 20);
            reported.extend(growth.report_if_doubled());
        }
        let expected = [32, 64, 128, 256, 512].map(|mib| format!("grew {mib} MiB in 3 requests"));
        assert_eq!(reported, expected);
    }

    #[test]
    fn a_worker_that_shrinks_has_not_grown() {
        let growth = Growth { at_start: 5 << 20, now: 0, ..Growth::begin() };
        assert_eq!((growth.bytes(), growth.is_large()), (0, false));
    }

    #[test]
    fn a_long_request_is_measured_at_once_and_short_ones_together() {
        let mut growth = Growth::begin();
        let ballast = vec![7u8; 64 << 20];
        growth.after_request(BUSY / 2);
        assert!(growth.bytes() < 32 << 20, "{growth:?}");
        growth.after_request(BUSY / 2);
        assert!(growth.bytes() >= 60 << 20, "{growth:?}");
        drop(ballast);
    }
}
