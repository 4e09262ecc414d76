//! Conditions that end a load before its time, in the notation of load testers.
//!
//! `time(1s, 10s)`: the mean of the right responses was above 1 s in each of 10 seconds. `quantile(95, 200ms, 10s)`: the 95th
//! percentile was. `http(5xx, 10%, 5s)`, `http(404, 20, 5s)`: responses with such a status were at least 10 %, or 20 per
//! second. `net(10%, 5s)`: requests without a complete response. `errors(10%, 5s)`: failed requests of all kinds.

use super::duration;
use super::tally::{Exchange, Failure, add, histogram, record};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The outcomes of one second of time.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The second since the start.
    pub second: u32,
    /// Right requests.
    pub right: u64,
    /// Failed requests.
    pub failed: u64,
    /// Failed requests without a complete response.
    pub network_failures: u64,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Microseconds of the right requests.
    pub latency: Histogram<u64>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    subject: Subject,
    /// The number of seconds in a row.
    seconds: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    Mean(Duration),
    Quantile(f64, Duration),
    Status(String, Amount),
    Network(Amount),
    Errors(Amount),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Percent(f64),
    PerSecond(u64),
}

/// Watches the seconds of a load.
#[derive(Debug)]
pub struct Watch<'a> {
    conditions: &'a [Condition],
    /// The seconds in a row for which each condition has been true.
    met: Vec<u32>,
}

// === impl Beat ===

impl Default for Beat {
    fn default() -> Beat {
        Beat { second: 0, right: 0, failed: 0, network_failures: 0, statuses: BTreeMap::new(), latency: histogram(2) }
    }
}

impl Beat {
    /// Counts an outcome.
    pub fn record(&mut self, exchange: &Exchange) {
        if let Some(status) = exchange.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        match exchange.failure {
            None => {
                self.right += 1;
                record(&mut self.latency, exchange.took);
            }
            Some(failure) => {
                self.failed += 1;
                self.network_failures += u64::from(Failure::is_network(failure));
            }
        }
    }

    /// Adds the outcomes of another thread.
    pub fn merge(&mut self, other: &Beat) {
        self.right += other.right;
        self.failed += other.failed;
        self.network_failures += other.network_failures;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        add(&mut self.latency, &other.latency);
    }
}

// === impl Watch ===

impl Watch<'_> {
    /// Watches for these conditions.
    pub fn new(conditions: &[Condition]) -> Watch<'_> {
        Watch { conditions, met: vec![0; conditions.len()] }
    }

    /// Takes in the next second. Returns the first condition that is met, with what it saw.
    pub fn observe(&mut self, beat: &Beat) -> Option<String> {
        for (condition, met) in self.conditions.iter().zip(&mut self.met) {
            let (is_true, seen) = condition.subject.judge(beat);
            *met = if is_true { *met + 1 } else { 0 };
            if *met >= condition.seconds {
                return Some(format!("{condition} at second {}: {seen}", beat.second));
            }
        }
        None
    }
}

// === impl Subject ===

impl Subject {
    /// Whether it is true in this second, and what was seen.
    fn judge(&self, beat: &Beat) -> (bool, String) {
        let milliseconds = |microseconds: f64| format!("{:.1} ms", microseconds / 1000.0);
        let all = beat.right + beat.failed;
        match self {
            Subject::Mean(limit) => {
                let mean = beat.latency.mean();
                (!beat.latency.is_empty() && mean > limit.as_micros() as f64, milliseconds(mean))
            }
            Subject::Quantile(percentile, limit) => {
                let value = beat.latency.value_at_quantile(percentile / 100.0);
                let is_over = !beat.latency.is_empty() && u128::from(value) > limit.as_micros();
                (is_over, milliseconds(value as f64))
            }
            Subject::Status(pattern, amount) => {
                let matching = beat.statuses.iter().filter(|(status, _)| is_like(**status, pattern));
                amount.judge(matching.map(|(_, count)| count).sum(), all)
            }
            Subject::Network(amount) => amount.judge(beat.network_failures, all),
            Subject::Errors(amount) => amount.judge(beat.failed, all),
        }
    }
}

// === impl Amount ===

impl Amount {
    fn judge(self, count: u64, all: u64) -> (bool, String) {
        let is_met = match self {
            Amount::Percent(percent) => all > 0 && count as f64 * 100.0 >= percent * all as f64,
            Amount::PerSecond(limit) => count >= limit,
        };
        (is_met, format!("{count} of {all} requests"))
    }
}

/// Whether a status is like `404`, `5xx` or `xx`.
fn is_like(status: u16, pattern: &str) -> bool {
    let status = status.to_string();
    pattern == "xx"
        || status.len() == pattern.len() && status.chars().zip(pattern.chars()).all(|(a, b)| b == 'x' || a == b)
}

// === impl Condition ===

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let unknown = || {
            format!(
                "{text:?} is not a condition; the conditions are time(limit, period), quantile(percentile, limit, period), \
                 http(5xx, 10%, period), net(10%, period) and errors(10%, period)"
            )
        };
        let (name, arguments) =
            text.trim().strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(unknown)?;
        let arguments: Vec<_> = arguments.split(',').map(str::trim).collect();
        let (subject, period) = match (name.trim(), arguments.as_slice()) {
            ("time", [limit, period]) => (Subject::Mean(duration::parse(limit)?), period),
            ("quantile", [percentile, limit, period]) => {
                let value: Option<f64> = percentile.parse().ok().filter(|value| (0.0..=100.0).contains(value));
                let value = value.ok_or_else(|| format!("{percentile:?} is not a percentile"))?;
                (Subject::Quantile(value, duration::parse(limit)?), period)
            }
            ("http", [status, amount, period]) => {
                let is_pattern = |c: char| c.is_ascii_digit() || c == 'x';
                if !status.chars().all(is_pattern) || !matches!(status.len(), 2 | 3) {
                    return Err(format!("{status:?} is not a status; write for example 5xx or 404"));
                }
                (Subject::Status((*status).to_owned(), parse_amount(amount)?), period)
            }
            ("net", [amount, period] | ["xx", amount, period]) => (Subject::Network(parse_amount(amount)?), period),
            ("errors", [amount, period]) => (Subject::Errors(parse_amount(amount)?), period),
            _ => return Err(unknown()),
        };
        let seconds = duration::parse(period)?.as_secs() as u32;
        if seconds == 0 {
            return Err(format!("{period:?}: the shortest period is 1s"));
        }
        Ok(Condition { text: text.trim().to_owned(), subject, seconds })
    }
}

fn parse_amount(text: &str) -> Result<Amount, String> {
    let amount = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse().ok().filter(|p| *p > 0.0 && *p <= 100.0).map(Amount::Percent),
        None => text.parse().ok().filter(|count| *count > 0).map(Amount::PerSecond),
    };
    amount.ok_or_else(|| format!("{text:?} is neither a percentage, such as 10%, nor a number of requests per second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second with right requests of 100 ms, and with responses 502.
    fn second(number: u32, right: u64, failed: u64) -> Beat {
        let mut beat = Beat { second: number, ..Beat::default() };
        let ms = Duration::from_millis;
        for _ in 0..right {
            beat.record(&Exchange { due: ms(0), took: ms(100), status: Some(200), failure: None });
        }
        for _ in 0..failed {
            let failure = Some(Failure::WrongStatus);
            beat.record(&Exchange { due: ms(0), took: ms(1), status: Some(502), failure });
        }
        beat
    }

    #[test]
    fn a_condition_must_be_met_in_each_second_of_its_period() {
        for (text, is_met) in [
            ("time(90ms, 3s)", true),
            ("time(110ms, 3s)", false),
            ("quantile(95, 90ms, 3s)", true),
            ("quantile(95, 110ms, 3s)", false),
            ("http(5xx, 10%, 3s)", true),
            ("http(502, 3, 3s)", true),
            ("http(5xx, 60%, 3s)", false),
            ("http(404, 1, 3s)", false),
            ("errors(10%, 3s)", true),
            ("net(xx, 10%, 3s)", false),
            ("errors(10%, 4s)", false),
        ] {
            let conditions = [text.parse::<Condition>().unwrap()];
            let mut watch = Watch::new(&conditions);
            let seconds = [(10, 5), (10, 5), (0, 0), (10, 5), (10, 5), (10, 5)];
            let seen: Vec<_> = (0..)
                .zip(seconds)
                .map(|(number, (right, failed))| watch.observe(&second(number, right, failed)))
                .collect();
            assert_eq!(seen[..5], [const { None }; 5], "{text}");
            assert_eq!(seen[5].is_some(), is_met, "{text}: {seen:?}");
        }
    }

    #[test]
    fn the_reason_names_what_was_seen() {
        let conditions = ["errors(50%, 1s)".parse().unwrap()];
        let reason = Watch::new(&conditions).observe(&second(4, 1, 3)).unwrap();
        assert_eq!(reason, "errors(50%, 1s) at second 4: 3 of 4 requests");
    }

    #[test]
    fn other_texts_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("time(1s)", "is not a condition"),
            ("tmie(1s, 2s)", "is not a condition"),
            ("quantile(101, 1s, 2s)", "percentile"),
            ("http(abc, 10%, 5s)", "status"),
            ("http(5xx, 0%, 5s)", "percentage"),
            ("errors(200%, 5s)", "percentage"),
            ("errors(10%, 100ms)", "1s"),
        ] {
            assert!(text.parse::<Condition>().unwrap_err().contains(reason), "{text}");
        }
    }
}
