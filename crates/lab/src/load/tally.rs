//! Counts the outcomes of requests and their times, as a whole and by second.

use crate::results::{Distribution, Percentiles};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// A complete response with a status that its checks do not allow.
    WrongStatus,
    /// A complete response without the expected header field.
    WrongHeader,
    /// A complete response with another body.
    WrongBody,
    /// No complete response in time; the client closed the connection (nginx logs that as 499).
    Timeout,
    /// The server's port or socket is closed.
    ConnectRefused,
    /// The backlog of a unix socket is full.
    ConnectBacklogFull,
    /// No connection in time.
    ConnectTimeout,
    /// No connection for another reason: no free port, no descriptor.
    ConnectFailed,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before the end of the response.
    ClosedEarly,
    /// The response is not HTTP.
    Malformed,
}

/// The outcome of one request.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Its intended send time (open loop) or its send time (closed loop), since the start.
    pub due: Duration,
    /// The time from then to its outcome.
    pub took: Duration,
    /// The status of a complete response.
    pub status: Option<u16>,
    /// `None`: a right response.
    pub failure: Option<Failure>,
}

/// All outcomes.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Right requests.
    pub right: u64,
    /// Right requests whose response was complete before the end of the load's time.
    pub right_in_time: u64,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failed requests.
    pub failures: BTreeMap<Failure, u64>,
    /// Microseconds of right requests.
    pub latency: Histogram<u64>,
    /// Microseconds of failed requests.
    pub failure_latency: Histogram<u64>,
    /// By second of the due time.
    pub seconds: Vec<SecondTally>,
    /// The last outcome, since the start.
    pub last_outcome: Duration,
    /// Bytes of all responses.
    pub received_bytes: u64,
    /// Requests that were sent late by the generator's fault, and the latest of them.
    pub late_sends: u64,
    /// The latest send.
    pub latest_send: Duration,
    /// Connections that were opened.
    pub connects: u64,
    /// The highest number of connections at a time.
    pub peak_connections: u64,
}

/// The outcomes of one second.
#[derive(Clone, Debug)]
pub struct SecondTally {
    /// Requests that were due, or sent.
    pub sent: u64,
    /// Right requests among them.
    pub right: u64,
    /// Failed requests among them.
    pub failed: u64,
    /// Outcomes in this second.
    pub finished: u64,
    /// Microseconds of the right requests.
    pub latency: Histogram<u64>,
    /// CPU time of the generator's threads in this second.
    pub generator_cpu: Duration,
}

/// The limit of a recorded time, in microseconds: an hour.
const MAX_MICROSECONDS: u64 = 3_600_000_000;
/// Significant digits of a run's histograms, and of a second's.
const DIGITS: u8 = 3;
const DIGITS_OF_A_SECOND: u8 = 2;
/// The relative width of a result's buckets.
const BUCKET_WIDTH: f64 = 1.01;

// === impl Failure ===

impl Failure {
    /// Its name in results.json.
    pub fn name(self) -> &'static str {
        match self {
            Failure::WrongStatus => "wrong_status",
            Failure::WrongHeader => "wrong_header",
            Failure::WrongBody => "wrong_body",
            Failure::Timeout => "timeout",
            Failure::ConnectRefused => "connect_refused",
            Failure::ConnectBacklogFull => "connect_backlog_full",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::ConnectFailed => "connect_failed",
            Failure::Reset => "reset",
            Failure::ClosedEarly => "closed_early",
            Failure::Malformed => "malformed",
        }
    }

    /// Whether there was no connection.
    pub fn is_of_connecting(self) -> bool {
        use Failure::{ConnectBacklogFull, ConnectFailed, ConnectRefused, ConnectTimeout};
        matches!(self, ConnectBacklogFull | ConnectFailed | ConnectRefused | ConnectTimeout)
    }

    /// Whether the server gave no complete response.
    pub fn is_network(self) -> bool {
        !matches!(self, Failure::WrongStatus | Failure::WrongHeader | Failure::WrongBody)
    }
}

// === impl Tally ===

impl Tally {
    /// An empty tally.
    pub fn new() -> Tally {
        Tally {
            right: 0,
            right_in_time: 0,
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency: histogram(DIGITS),
            failure_latency: histogram(DIGITS),
            seconds: Vec::new(),
            last_outcome: Duration::ZERO,
            received_bytes: 0,
            late_sends: 0,
            latest_send: Duration::ZERO,
            connects: 0,
            peak_connections: 0,
        }
    }

    /// Counts a request that is due or sent.
    pub fn sent(&mut self, due: Duration) {
        self.second(due).sent += 1;
    }

    /// Counts the outcome of a request. `end` is the end of the load's time.
    pub fn record(&mut self, exchange: &Exchange, end: Duration) {
        let finished = exchange.due + exchange.took;
        self.last_outcome = self.last_outcome.max(finished);
        if let Some(status) = exchange.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        self.second(finished).finished += 1;
        let second = self.second(exchange.due);
        match exchange.failure {
            None => {
                second.right += 1;
                record(&mut second.latency, exchange.took);
                self.right += 1;
                self.right_in_time += u64::from(finished <= end);
                record(&mut self.latency, exchange.took);
            }
            Some(failure) => {
                second.failed += 1;
                *self.failures.entry(failure).or_default() += 1;
                record(&mut self.failure_latency, exchange.took);
            }
        }
    }

    /// Counts a send that was late by the generator's fault.
    pub fn late(&mut self, by: Duration) {
        self.late_sends += 1;
        self.latest_send = self.latest_send.max(by);
    }

    /// The second of a time.
    pub fn second(&mut self, at: Duration) -> &mut SecondTally {
        let second = at.as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, SecondTally::new);
        }
        &mut self.seconds[second]
    }

    /// All failed requests.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Adds the outcomes of another thread.
    pub fn merge(&mut self, other: &Tally) {
        self.right += other.right;
        self.right_in_time += other.right_in_time;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        add(&mut self.latency, &other.latency);
        add(&mut self.failure_latency, &other.failure_latency);
        for (number, theirs) in other.seconds.iter().enumerate() {
            let ours = self.second(Duration::from_secs(number as u64));
            ours.sent += theirs.sent;
            ours.right += theirs.right;
            ours.failed += theirs.failed;
            ours.finished += theirs.finished;
            ours.generator_cpu += theirs.generator_cpu;
            add(&mut ours.latency, &theirs.latency);
        }
        self.last_outcome = self.last_outcome.max(other.last_outcome);
        self.received_bytes += other.received_bytes;
        self.late_sends += other.late_sends;
        self.latest_send = self.latest_send.max(other.latest_send);
        self.connects += other.connects;
        self.peak_connections += other.peak_connections;
    }
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

// === impl SecondTally ===

impl SecondTally {
    fn new() -> SecondTally {
        SecondTally {
            sent: 0,
            right: 0,
            failed: 0,
            finished: 0,
            latency: histogram(DIGITS_OF_A_SECOND),
            generator_cpu: Duration::ZERO,
        }
    }
}

/// An empty histogram of microseconds, with these significant digits.
pub fn histogram(digits: u8) -> Histogram<u64> {
    // It grows with its values: an empty second takes little memory.
    let mut histogram = Histogram::new(digits).expect("a precision that the crate allows");
    histogram.auto(true);
    histogram
}

/// Records a time. (`saturating_record` would not let the histogram grow.)
pub fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let microseconds = (time.as_micros() as u64).clamp(1, MAX_MICROSECONDS);
    histogram.record(microseconds).expect("a histogram that grows takes all values");
}

/// Adds the values of another histogram.
pub fn add(to: &mut Histogram<u64>, other: &Histogram<u64>) {
    to.add(other).expect("a histogram that grows takes all values");
}

/// The times of a histogram, as results.json has them.
pub fn distribution(histogram: &Histogram<u64>) -> Distribution {
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    let mut exponent = i32::MIN;
    for value in histogram.iter_recorded() {
        let microseconds = value.value_iterated_to().max(1);
        let of_this = ((microseconds as f64).ln() / BUCKET_WIDTH.ln()).ceil() as i32;
        match buckets.last_mut() {
            Some((upper, count)) if of_this == exponent => {
                *upper = microseconds;
                *count += value.count_at_value();
            }
            _ => buckets.push((microseconds, value.count_at_value())),
        }
        exponent = of_this;
    }
    Distribution { count: histogram.len(), percentiles: percentiles(histogram), buckets }
}

/// The percentiles of a histogram in milliseconds; `None` if it is empty.
pub fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    let milliseconds = |microseconds: u64| microseconds as f64 / 1000.0;
    let at = |share: f64| milliseconds(histogram.value_at_quantile(share).min(histogram.max()));
    (!histogram.is_empty()).then(|| Percentiles {
        min: milliseconds(histogram.min()),
        mean: (histogram.mean()).round() / 1000.0,
        p50: at(0.5),
        p80: at(0.8),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: milliseconds(histogram.max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn tally_of(first: u64) -> Tally {
        let mut tally = Tally::new();
        for number in first..first + 100 {
            tally.sent(MS(1500));
            let right = Exchange { due: MS(1500), took: MS(number), status: Some(200), failure: None };
            tally.record(&right, MS(1550));
        }
        let failed = Exchange { due: MS(0), took: MS(5), status: Some(503), failure: Some(Failure::WrongStatus) };
        tally.record(&failed, MS(1550));
        tally
    }

    #[test]
    fn outcomes_are_counted_and_timed_by_the_second() {
        let mut tally = tally_of(1);
        tally.merge(&tally_of(101));
        assert_eq!((tally.right, tally.failed(), tally.right_in_time), (200, 2, 50));
        assert_eq!(tally.statuses, BTreeMap::from([(200, 200), (503, 2)]));
        assert_eq!((tally.seconds[0].failed, tally.seconds[1].right, tally.seconds[1].sent), (2, 200, 200));
        assert_eq!(tally.last_outcome, MS(1700));
        let percentiles = percentiles(&tally.latency).unwrap();
        assert!((percentiles.p99 - 198.0).abs() < 0.4, "{percentiles:?}");
        assert!((percentiles.mean - 100.5).abs() < 0.2, "{percentiles:?}");
        assert!(super::percentiles(&histogram(3)).is_none());
    }

    #[test]
    fn buckets_are_narrow_and_complete() {
        let mut values = histogram(3);
        for microseconds in (1..200_000).step_by(7) {
            record(&mut values, Duration::from_micros(microseconds));
        }
        let distribution = distribution(&values);
        assert_eq!(distribution.buckets.iter().map(|(_, count)| count).sum::<u64>(), distribution.count);
        assert!(distribution.buckets.is_sorted_by(|a, b| a.0 < b.0));
        assert!(distribution.buckets.len() < 1300, "{}", distribution.buckets.len());
        assert!(distribution.buckets.last().unwrap().0.abs_diff(199_998) < 200);
    }
}
