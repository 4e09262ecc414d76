//! The processor time of this process, for the worker's account.
//!
//! The clock of a process is a system call. It is read when requests have run for a millisecond since the last reading, and
//! before the worker sleeps: the account of a busy worker is behind by less than a millisecond of work, and the account of an
//! idle worker is exact.
//!
//! The same holds for one request: one that ran for less than 0.3 milliseconds counts as computing for all of that time.

use howdah_channel::account::process_cpu_time;
use nix::sys::resource::{UsageWho, getrusage};
use std::time::Duration;

/// The meter of one worker. A reading is the time since the meter began.
#[derive(Debug)]
pub struct CpuMeter {
    /// The processor time before the first request.
    at_start: Duration,
    /// The time that requests ran since the last reading.
    unread: Duration,
}

/// The times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// The processor time.
    pub cpu: Duration,
    /// How long it kept the worker from other requests: all the time that it ran if it slept, as for a database, or else the
    /// processor time, because the kernel may have run other processes meanwhile.
    pub occupied: Duration,
}

/// The processor time of each request, and whether it slept.
#[derive(Debug)]
pub struct RequestCpu {
    /// The processor time at the last reading.
    last: Duration,
    /// The time that requests ran since then, and their number.
    unread: Duration,
    requests: u32,
    /// How often the thread had slept by then.
    sleeps: i64,
}

/// The running time between two readings.
const INTERVAL: Duration = Duration::from_millis(1);
/// A request that ran for less counts as computing.
const SHORT: Duration = Duration::from_micros(300);
/// The clock is read again after this number of requests: between two of them the worker has some microseconds of work.
const READ_AFTER: u32 = 8;

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
        RequestCpu { last: process_cpu_time(), unread: Duration::ZERO, requests: 0, sleeps: sleeps() }
    }

    /// The worker has slept between two requests.
    pub fn worker_has_slept(&mut self) {
        self.sleeps = sleeps();
    }

    /// The times of a request that ran for this time.
    pub fn of_request(&mut self, ran: Duration) -> RequestTimes {
        if ran < SHORT {
            self.unread += ran;
            self.requests += 1;
            if self.requests == READ_AFTER {
                self.read();
            }
            return RequestTimes { cpu: ran, occupied: ran };
        }
        let cpu = self.read().min(ran);
        let before = std::mem::replace(&mut self.sleeps, sleeps());
        RequestTimes { cpu, occupied: if self.sleeps == before { cpu } else { ran } }
    }

    /// The processor time since the last reading, without that of requests.
    fn read(&mut self) -> Duration {
        let now = process_cpu_time();
        let spent = now.saturating_sub(self.last).saturating_sub(self.unread);
        (self.last, self.unread, self.requests) = (now, Duration::ZERO, 0);
        spent
    }
}

/// How often this thread, which runs the requests, has given its processor up by itself; 0 if that is unknown.
fn sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
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
        assert_eq!(meter.of_request(SHORT / 2), RequestTimes { cpu: SHORT / 2, occupied: SHORT / 2 });
        // Other tests of this process compute meanwhile, for a tenth of a second at most.
        std::thread::sleep(500 * INTERVAL);
        let times = meter.of_request(500 * INTERVAL);
        assert!(times.cpu < 400 * INTERVAL && times.occupied == 500 * INTERVAL, "it slept: {times:?}");
        meter.worker_has_slept();
        // The worker's own work between requests is not of the next one.
        for _ in 0..READ_AFTER {
            let before = process_cpu_time();
            while process_cpu_time().saturating_sub(before) < 60 * INTERVAL {}
            meter.of_request(Duration::ZERO);
        }
        assert!(meter.of_request(500 * INTERVAL).cpu < 400 * INTERVAL);
        let before = process_cpu_time();
        while process_cpu_time().saturating_sub(before) < 3 * INTERVAL {}
        let spent = meter.of_request(3 * INTERVAL).cpu;
        assert!(spent >= 2 * INTERVAL && spent <= 3 * INTERVAL, "{spent:?}");
    }
}
