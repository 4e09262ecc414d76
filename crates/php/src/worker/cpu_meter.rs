//! The processor time of this process, for the worker's account.
//!
//! The clock of a process is a system call. It is read when requests have run for a millisecond since the last reading, and
//! before the worker sleeps: the account of a busy worker is behind by less than a millisecond of work, and the account of an
//! idle worker is exact.

use howdah_channel::account::process_cpu_time;
use std::time::Duration;

/// The meter of one worker. A reading is the time since the meter began.
#[derive(Debug)]
pub struct CpuMeter {
    /// The processor time before the first request.
    at_start: Duration,
    /// The time that requests ran since the last reading.
    unread: Duration,
}

/// The running time between two readings.
const INTERVAL: Duration = Duration::from_millis(1);

// === impl CpuMeter ===

impl CpuMeter {
    /// A meter at zero.
    pub fn begin() -> CpuMeter {
        CpuMeter { at_start: process_cpu_time(), unread: Duration::ZERO }
    }

    /// A request has ended that ran for this time; a reading, if one is due.
    pub fn after_request(&mut self, ran: Duration) -> Option<Duration> {
        self.unread += ran;
        (self.unread >= INTERVAL).then(|| self.read())
    }

    /// The worker is about to sleep; a reading, if a request has ended since the last one.
    pub fn before_sleep(&mut self) -> Option<Duration> {
        (!self.unread.is_zero()).then(|| self.read())
    }

    fn read(&mut self) -> Duration {
        self.unread = Duration::ZERO;
        process_cpu_time().saturating_sub(self.at_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_once_for_a_millisecond_of_work_and_before_sleep() {
        let mut meter = CpuMeter::begin();
        assert_eq!(meter.before_sleep(), None, "nothing has run");
        let readings = (0..100).filter_map(|_| meter.after_request(INTERVAL / 10)).count();
        assert_eq!(readings, 10);
        assert_eq!(meter.before_sleep(), None, "the last reading is of the last request");
        assert_eq!(meter.after_request(INTERVAL / 2), None);
        assert!(meter.before_sleep().is_some());
        assert_eq!(meter.before_sleep(), None);
    }

    #[test]
    fn a_reading_contains_the_work_since_the_beginning() {
        let mut meter = CpuMeter::begin();
        let before = process_cpu_time();
        while process_cpu_time().saturating_sub(before) < 3 * INTERVAL {}
        let spent = meter.after_request(INTERVAL).expect("a millisecond of work is read");
        assert!(spent >= 3 * INTERVAL, "{spent:?}");
    }
}
