//! The processor time of this process, for the worker's account.
//!
//! The clock of a process is a system call. It is read when requests have run for a millisecond since the last reading, and
//! before the worker sleeps: the account of a busy worker is behind by less than a millisecond of work, and the account of an
//! idle worker is exact.
//!
//! The same holds for one request: one that ran for less than a millisecond counts as computing for all of that time.

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

/// The processor time of each request.
#[derive(Debug)]
pub struct RequestCpu {
    /// The processor time at the last reading.
    last: Duration,
    /// The time that requests ran since then.
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

// === impl RequestCpu ===

impl RequestCpu {
    /// Before the first request.
    pub fn begin() -> RequestCpu {
        RequestCpu { last: process_cpu_time(), unread: Duration::ZERO }
    }

    /// The processor time of a request that ran for this time.
    pub fn of_request(&mut self, ran: Duration) -> Duration {
        if ran < INTERVAL {
            self.unread += ran;
            return ran;
        }
        let now = process_cpu_time();
        let spent = now.saturating_sub(self.last).saturating_sub(self.unread);
        (self.last, self.unread) = (now, Duration::ZERO);
        spent.min(ran)
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

    #[test]
    fn a_request_that_waits_uses_no_processor_and_a_short_one_counts_as_computing() {
        let mut meter = RequestCpu::begin();
        assert_eq!(meter.of_request(INTERVAL / 2), INTERVAL / 2);
        // Other tests of this process compute meanwhile, for a tenth of a second at most.
        std::thread::sleep(500 * INTERVAL);
        assert!(meter.of_request(500 * INTERVAL) < 400 * INTERVAL, "it slept");
        let before = process_cpu_time();
        while process_cpu_time().saturating_sub(before) < 3 * INTERVAL {}
        let spent = meter.of_request(3 * INTERVAL);
        assert!(spent >= 2 * INTERVAL && spent <= 3 * INTERVAL, "{spent:?}");
    }
}
