//! The answers of applications and routes, from `GET /metrics`: requests, errors, refusals and times.
//!
//! Only the samples that are needed are read, from Prometheus' text format. A line of another form is ignored.

use howdah_metrics::histogram::{CLASSIC_BOUNDS, CLASSIC_LABELS};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The counters at a time.
#[derive(Clone, Debug, Default)]
pub struct Counters(BTreeMap<Row, Traffic>);

/// An application, and the route that led to it. Requests that no application has answered have an empty application.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its name.
    pub application: String,
    /// As in the label `route` of the metrics; empty for none.
    pub route: String,
}

/// Answers: all since the start, or those of an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// The requests whose response has begun.
    pub requests: u64,
    /// The answers with a status of 500 or more.
    pub errors: u64,
    /// The refused requests by cause.
    pub refused: BTreeMap<String, u64>,
    /// The answers by their time: a number for each bucket.
    pub times: [u64; BUCKETS],
}

/// The counters of the last seconds, for rates that do not jump.
#[derive(Debug, Default)]
pub struct Window {
    readings: VecDeque<(Instant, Counters)>,
}

/// The traffic during a [`Window`].
#[derive(Debug)]
pub struct Rates {
    /// Its length.
    pub seconds: f64,
    /// By application.
    pub traffic: BTreeMap<String, Traffic>,
    /// All refused requests since the start, by application and cause.
    pub refused: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The number of buckets.
pub const BUCKETS: usize = CLASSIC_LABELS.len();
/// The length of a [`Window`].
pub const WINDOW: Duration = Duration::from_secs(10);
const REQUESTS: &str = "howdah_requests_total";
const REFUSED: &str = "howdah_requests_refused_total";
const TIMES: &str = "howdah_request_duration_seconds_bucket";

// === impl Counters ===

impl Counters {
    /// From the text of `/metrics`.
    pub fn read(text: &str) -> Counters {
        let mut rows: BTreeMap<Row, Traffic> = BTreeMap::new();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            if ![REQUESTS, REFUSED, TIMES].contains(&name) {
                continue;
            }
            let Some((mut labels, value)) = read_labels(rest) else { continue };
            let Some(value) = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok()) else {
                continue;
            };
            let Some(application) = labels.remove("application") else { continue };
            let traffic =
                rows.entry(Row { application, route: labels.remove("route").unwrap_or_default() }).or_default();
            traffic.count(name, &labels, value as u64);
        }
        for traffic in rows.values_mut() {
            // Each bucket of the text has those below it, too.
            let mut below = 0;
            for count in &mut traffic.times {
                let up_to = below.max(*count);
                (*count, below) = (up_to - below, up_to);
            }
        }
        Counters(rows)
    }

    /// The traffic since a former reading. A counter that is smaller than before has begun again.
    pub fn since(&self, former: &Counters) -> BTreeMap<Row, Traffic> {
        let nothing = Traffic::default();
        let changes = self.0.iter().map(|(row, now)| (row, now.since(former.0.get(row).unwrap_or(&nothing))));
        changes.map(|(row, traffic)| (row.clone(), traffic)).collect()
    }
}

/// The same by application.
pub fn by_application(rows: &BTreeMap<Row, Traffic>) -> BTreeMap<String, Traffic> {
    let mut all: BTreeMap<String, Traffic> = BTreeMap::new();
    for (row, traffic) in rows {
        all.entry(row.application.clone()).or_default().add(traffic);
    }
    all
}

// === impl Traffic ===

impl Traffic {
    fn count(&mut self, name: &str, labels: &HashMap<&str, String>, value: u64) {
        match name {
            REQUESTS => {
                self.requests += value;
                if labels.get("status").is_some_and(|status| status.starts_with('5')) {
                    self.errors += value;
                }
            }
            REFUSED => *self.refused.entry(labels.get("cause").cloned().unwrap_or_default()).or_default() += value,
            _ => {
                if let Some(bucket) = labels.get("le").and_then(|bound| bucket_of(bound)) {
                    self.times[bucket] += value;
                }
            }
        }
    }

    fn since(&self, before: &Traffic) -> Traffic {
        let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let refused = self.refused.iter().map(|(cause, now)| {
            let before = before.refused.get(cause).copied().unwrap_or_default();
            (cause.clone(), less(*now, before))
        });
        Traffic {
            requests: less(self.requests, before.requests),
            errors: less(self.errors, before.errors),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            times: std::array::from_fn(|bucket| less(self.times[bucket], before.times[bucket])),
        }
    }

    /// Adds other answers.
    pub fn add(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.errors += other.errors;
        for (cause, count) in &other.refused {
            *self.refused.entry(cause.clone()).or_default() += count;
        }
        for (sum, count) in self.times.iter_mut().zip(&other.times) {
            *sum += count;
        }
    }

    /// Whether nothing happened.
    pub fn is_nothing(&self) -> bool {
        *self == Traffic::default()
    }
}

// === impl Window ===

impl Window {
    /// Adds a reading, and forgets those that are too old.
    pub fn add(&mut self, counters: Counters, at: Instant) {
        self.readings.push_back((at, counters));
        while self.readings.get(1).is_some_and(|(second, _)| at.saturating_duration_since(*second) >= WINDOW) {
            self.readings.pop_front();
        }
        // A page that was closed for a while.
        while self.readings.front().is_some_and(|(first, _)| at.saturating_duration_since(*first) > 2 * WINDOW) {
            self.readings.pop_front();
        }
    }

    /// Forgets all: the next reading may come from another howdah.
    pub fn clear(&mut self) {
        self.readings.clear();
    }

    /// The rates between the first and the last reading; `None` until there are two.
    pub fn rates(&self) -> Option<Rates> {
        let ((first, before), (last, now)) = (self.readings.front()?, self.readings.back()?);
        let seconds = last.saturating_duration_since(*first).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let refused = by_application(&now.0).into_iter().map(|(name, traffic)| (name, traffic.refused));
        Some(Rates { seconds, traffic: by_application(&now.since(before)), refused: refused.collect() })
    }
}

// === impl Rates ===

impl Rates {
    /// As JSON, by application. The empty name stands for requests that no application has answered.
    pub fn json(&self) -> Value {
        let numbers = self.traffic.iter().map(|(name, traffic)| (name.clone(), self.of(name, traffic)));
        json!({ "seconds": self.seconds, "applications": numbers.collect::<Map<_, _>>() })
    }

    /// The numbers of one application.
    pub fn of_application(&self, name: &str) -> Option<Value> {
        Some(self.of(name, self.traffic.get(name)?))
    }

    fn of(&self, name: &str, traffic: &Traffic) -> Value {
        json!({
            "requests": traffic.requests as f64 / self.seconds,
            "errors": traffic.errors as f64 / self.seconds,
            "p50": percentile(&traffic.times, 0.5),
            "p95": percentile(&traffic.times, 0.95),
            "p99": percentile(&traffic.times, 0.99),
            "refused": traffic.refused.iter().map(|(cause, count)| (cause.clone(), json!(*count as f64 / self.seconds)))
                .collect::<Map<_, _>>(),
            "refused_total": self.refused.get(name),
        })
    }
}

fn bucket_of(label: &str) -> Option<usize> {
    CLASSIC_LABELS.iter().position(|known| *known == label)
}

/// The upper bound of a bucket, in seconds; the last one has none.
fn bound_of(bucket: usize) -> Option<f64> {
    CLASSIC_BOUNDS.get(bucket).map(|nanoseconds| *nanoseconds as f64 / 1e9)
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
            let lower = bucket.checked_sub(1).and_then(bound_of).unwrap_or(0.0);
            let upper = bound_of(bucket).unwrap_or(lower);
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
        howdah_requests_refused_total{application=\"a\\\"b\\\\\",route=\"s\",cause=\"queue\"} 2\n\
        howdah_request_duration_seconds_bucket{application=\"a\\\"b\\\\\",route=\"s\",responder=\"a\",le=\"0.01\"} 5\n\
        howdah_request_duration_seconds_bucket{application=\"a\\\"b\\\\\",route=\"s\",responder=\"a\",le=\"+Inf\"} 5\n\
        howdah_requests_total{application=\"broken\nhowdah_requests_total 7\nno text\n";

    fn after() -> Counters {
        let changes = [
            ("\"5xx\"} 3", "\"5xx\"} 10"),
            ("\"2xx\"} 100", "\"2xx\"} 140"),
            ("\"queue\"} 2", "\"queue\"} 6"),
            ("\"0.01\"} 5", "\"0.01\"} 7"),
            ("\"+Inf\"} 5", "\"+Inf\"} 8"),
        ];
        let text = changes.iter().fold(BEFORE.to_owned(), |text, (from, to)| text.replace(from, to));
        Counters::read(&text)
    }

    fn row(route: &str) -> Row {
        Row { application: "a\"b\\".to_owned(), route: route.to_owned() }
    }

    #[test]
    fn traffic_is_the_difference_of_two_readings() {
        let (before, after) = (Counters::read(BEFORE), after());
        let rows = after.since(&before);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[&row("r}")].requests, rows[&row("r}")].errors), (7, 7));
        let found = &rows[&row("s")];
        assert_eq!((found.requests, found.errors, &found.refused), (40, 0, &[("queue".to_owned(), 4)].into()));
        let both = &by_application(&rows)["a\"b\\"];
        assert_eq!((both.requests, both.errors), (47, 7));
        assert!(after.since(&after)[&row("s")].is_nothing());
        // A howdah that was started again.
        assert_eq!(before.since(&after)[&row("r}")].errors, 3);
    }

    #[test]
    fn buckets_are_counted_without_those_below_them() {
        let bucket = |bound: &str, count: u64| {
            format!("howdah_request_duration_seconds_bucket{{application=\"a\",route=\"\",le=\"{bound}\"}} {count}\n")
        };
        let text = |counts: [u64; 2]| {
            let mut text = String::new();
            for (index, label) in CLASSIC_LABELS.iter().enumerate() {
                text += &bucket(label, if index < 4 { 0 } else { counts[usize::from(*label == "+Inf")] });
            }
            text
        };
        let (before, after) = (Counters::read(&text([5, 5])), Counters::read(&text([7, 8])));
        let times = after.since(&before)[&Row { application: "a".to_owned(), ..Row::default() }].times;
        assert_eq!((times[4], times[14], times.iter().sum::<u64>()), (2, 1, 3));
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

    #[test]
    fn rates_are_of_the_last_seconds() {
        let start = Instant::now();
        let mut window = Window::default();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        window.add(Counters::read(BEFORE), at(0));
        assert!(window.rates().is_none());
        window.add(after(), at(10));
        let rates = window.rates().expect("two readings");
        let name = "a\"b\\";
        assert_eq!((rates.seconds, rates.traffic[name].requests), (10.0, 47));
        let json = rates.of_application(name).expect("it has traffic");
        assert_eq!((&json["requests"], &json["errors"]), (&json!(4.7), &json!(0.7)));
        assert_eq!((&json["refused"]["queue"], &json["refused_total"]["queue"]), (&json!(0.4), &json!(6)));
        // The first reading is older than the window now, and then much older.
        window.add(after(), at(20));
        assert_eq!(window.rates().map(|rates| (rates.seconds, rates.traffic[name].requests)), Some((10.0, 0)));
        window.add(after(), at(100));
        assert!(window.rates().is_none());
    }
}
