//! Counts the outcomes of the requests and their times.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The outcome of one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A response with this status; its text is the expected one, if that was checked.
    Status(u16),
    /// A response 200 without the expected text.
    Wrong,
    /// No complete response: the reason.
    Lost(&'static str),
}

/// The outcomes of a load.
#[derive(Debug)]
pub struct Tally {
    counts: BTreeMap<Outcome, u64>,
    /// Times of the responses 200, and of all other outcomes, since the request was due, in microseconds.
    ok: Histogram<u64>,
    others: Histogram<u64>,
    /// Times of the responses 200 for each second of the load.
    seconds: Vec<Histogram<u64>>,
}

/// The limit of a recorded time, in microseconds.
const MAX_MICROSECONDS: u64 = 600_000_000;

// === impl Tally ===

impl Tally {
    /// An empty tally.
    pub fn new() -> Tally {
        Tally { counts: BTreeMap::new(), ok: histogram(), others: histogram(), seconds: Vec::new() }
    }

    /// Counts the outcome of a request. `due` is its time in the schedule, `took` the time from then to the outcome.
    pub fn record(&mut self, due: Duration, took: Duration, outcome: Outcome) {
        let microseconds = (took.as_micros() as u64).clamp(1, MAX_MICROSECONDS);
        let second = due.as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize_with(second + 1, histogram);
        }
        let is_ok = outcome == Outcome::Status(200);
        let histogram = if is_ok { &mut self.ok } else { &mut self.others };
        histogram.saturating_record(microseconds);
        if is_ok {
            self.seconds[second].saturating_record(microseconds);
        }
        *self.counts.entry(outcome).or_default() += 1;
    }

    /// The report as JSON; times in milliseconds.
    pub fn report(&self) -> Value {
        let name = |outcome: &Outcome| match outcome {
            Outcome::Status(status) => status.to_string(),
            Outcome::Wrong => "wrong".to_owned(),
            Outcome::Lost(reason) => (*reason).to_owned(),
        };
        let counts: BTreeMap<_, _> = self.counts.iter().map(|(outcome, count)| (name(outcome), *count)).collect();
        let seconds: Vec<_> =
            self.seconds.iter().map(|second| json!({"ok": second.len(), "p99": at(second, 0.99)})).collect();
        json!({
            "requests": self.counts.values().sum::<u64>(),
            "outcomes": counts,
            "ok": times(&self.ok),
            "others": times(&self.others),
            "seconds": seconds,
        })
    }
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::new()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(MAX_MICROSECONDS, 3).expect("a range and a precision that the crate allows")
}

fn at(histogram: &Histogram<u64>, share: f64) -> f64 {
    histogram.value_at_quantile(share) as f64 / 1000.0
}

fn times(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    json!({
        "count": histogram.len(),
        "p50": at(histogram, 0.5),
        "p90": at(histogram, 0.9),
        "p99": at(histogram, 0.99),
        "p999": at(histogram, 0.999),
        "max": histogram.max() as f64 / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_and_responses_200_are_timed_by_the_second() {
        let mut tally = Tally::new();
        let ms = Duration::from_millis;
        for number in 0..100 {
            tally.record(ms(1500), ms(number + 1), Outcome::Status(200));
        }
        tally.record(ms(0), ms(5), Outcome::Status(503));
        tally.record(ms(0), ms(7), Outcome::Lost("refused"));
        let report = tally.report();
        assert_eq!(report["requests"], 102);
        assert_eq!(report["outcomes"], json!({"200": 100, "503": 1, "refused": 1}));
        assert!((report["ok"]["p99"].as_f64().unwrap() - 99.0).abs() < 0.2, "{report}");
        assert_eq!(report["others"]["count"], 2);
        assert_eq!((&report["seconds"][0]["ok"], &report["seconds"][1]["ok"]), (&json!(0), &json!(100)));
    }
}
