//! The answers of applications, from `GET /metrics`: errors, and a histogram of times. A howdah without that path has neither.
//!
//! Only the samples that are needed are read, from Prometheus' text format. A line of another form is ignored.

use crate::commands::dashboard::history::record::Answers;
use std::collections::{BTreeMap, HashMap};

/// The counters of each application at a time. The empty name stands for requests that no application has answered.
#[derive(Debug, Default)]
pub struct AnswerCounters(BTreeMap<String, Counted>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Counted {
    errors: u64,
    /// By bucket, each with those below it.
    buckets: [u64; BUCKETS],
}

/// The upper bounds of the buckets, in seconds, as howdah writes them. One more bucket has no bound.
pub const BOUNDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The number of buckets.
pub const BUCKETS: usize = BOUNDS.len() + 1;
const REQUESTS: &str = "howdah_requests_total";
const TIMES: &str = "howdah_request_duration_seconds_bucket";

// === impl AnswerCounters ===

impl AnswerCounters {
    /// From the text of `/metrics`.
    pub fn read(text: &str) -> AnswerCounters {
        let mut counters = AnswerCounters::default();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            if name != REQUESTS && name != TIMES {
                continue;
            }
            let Some((labels, value)) = read_labels(rest) else { continue };
            let Some(value) = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok()) else {
                continue;
            };
            let Some(application) = labels.get("application") else { continue };
            let value = value as u64;
            let counted = counters.0.entry(application.clone()).or_default();
            match labels.get("le").map(|bound| bucket_of(bound)) {
                Some(Some(bucket)) => counted.buckets[bucket] += value,
                None if labels.get("status").is_some_and(|status| status.starts_with('5')) => counted.errors += value,
                _ => {}
            }
        }
        counters
    }

    /// The answers since a former reading, for applications that had one. A counter that is smaller than before has begun
    /// again.
    pub fn since(&self, former: &AnswerCounters) -> BTreeMap<String, Answers> {
        let changes = self.0.iter().map(|(name, now)| {
            let zero = Counted::default();
            let before = former.0.get(name).unwrap_or(&zero);
            let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            let cumulative: Vec<u64> =
                now.buckets.iter().zip(&before.buckets).map(|(now, before)| less(*now, *before)).collect();
            let mut times = Vec::with_capacity(BUCKETS);
            let mut below = 0;
            for count in cumulative {
                times.push(u32::try_from(count.saturating_sub(below)).unwrap_or(u32::MAX));
                below = count.max(below);
            }
            while times.last() == Some(&0) {
                times.pop();
            }
            let errors = u32::try_from(less(now.errors, before.errors)).unwrap_or(u32::MAX);
            (name.clone(), Answers { errors, times })
        });
        changes.collect()
    }
}

fn bucket_of(bound: &str) -> Option<usize> {
    if bound == "+Inf" {
        return Some(BOUNDS.len());
    }
    let bound: f64 = bound.parse().ok()?;
    BOUNDS.iter().position(|known| *known == bound)
}

/// The labels after an opening brace, and the text behind the closing one.
fn read_labels(mut text: &str) -> Option<(HashMap<&str, String>, &str)> {
    let mut labels = HashMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name, value);
        text = &rest[end..];
    }
}

/// The time below which this share of the answers stays, in seconds: within a bucket, they are taken as evenly spread. The
/// last bucket counts as its lower bound. `None` without answers.
pub fn percentile(times: &[u64; BUCKETS], share: f64) -> Option<f64> {
    let total: u64 = times.iter().sum();
    let wanted = total as f64 * share;
    let mut below = 0.0;
    for (bucket, count) in times.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if below + count >= wanted {
            let lower = bucket.checked_sub(1).map_or(0.0, |before| BOUNDS[before]);
            let upper = BOUNDS.get(bucket).copied().unwrap_or(lower);
            return Some(lower + (upper - lower) * ((wanted - below) / count).clamp(0.0, 1.0));
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# HELP howdah_requests_total x\n# TYPE howdah_requests_total counter\n\
        howdah_requests_total{application=\"a\\\"b\\\\\",route=\"r}\",status=\"5xx\"} 3\n\
        howdah_requests_total{application=\"a\\\"b\\\\\",route=\"s\",status=\"5xx\"} 1\n\
        howdah_requests_total{application=\"a\\\"b\\\\\",route=\"s\",status=\"2xx\"} 100\n\
        howdah_request_duration_seconds_bucket{application=\"a\\\"b\\\\\",le=\"0.01\"} 5\n\
        howdah_request_duration_seconds_bucket{application=\"a\\\"b\\\\\",le=\"+Inf\"} 5\n\
        howdah_requests_total{application=\"broken\nhowdah_requests_total 7\nno text\n";

    #[test]
    fn answers_are_the_difference_of_two_readings() {
        let after = BEFORE
            .replace("\"5xx\"} 3", "\"5xx\"} 10")
            .replace("\"0.01\"} 5", "\"0.01\"} 7")
            .replace("\"+Inf\"} 5", "\"+Inf\"} 8");
        let (before, after) = (AnswerCounters::read(BEFORE), AnswerCounters::read(&after));
        let answers = after.since(&before);
        assert_eq!(answers.len(), 1);
        let found = &answers["a\"b\\"];
        assert_eq!((found.errors, found.times.len(), found.times.iter().sum::<u32>()), (7, BUCKETS, 3));
        assert_eq!((found.times[4], found.times[14]), (2, 1));
        assert_eq!(after.since(&after)["a\"b\\"], Answers::default());
        // A howdah that was started again.
        assert_eq!(before.since(&after)["a\"b\\"].errors, 4);
    }

    #[test]
    fn percentiles_are_within_their_bucket() {
        let mut times = [0; BUCKETS];
        assert_eq!(percentile(&times, 0.5), None);
        times[4] = 100;
        assert_eq!(percentile(&times, 0.5), Some(0.0075));
        times[BUCKETS - 1] = 1;
        assert_eq!(percentile(&times, 0.999), Some(10.0));
        assert!(percentile(&times, 0.0).is_some_and(|least| least <= 0.005));
    }
}
