//! The records of a time become the points of a chart: equal intervals, each with the mean of its samples.

use crate::commands::dashboard::history::answers::{BUCKETS, percentile};
use crate::commands::dashboard::history::record::{Answers, Numbers, Sample};
use crate::commands::dashboard::history::store::{MAX_SECONDS, Store};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Options in the query of the URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The length of the time, which ends now.
    seconds: u64,
    /// One application; `None` is all.
    application: Option<String>,
}

/// The sums of one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// Of samples, in seconds.
    covered: f64,
    /// All others are multiplied with the seconds of their samples.
    requests: f64,
    with_requests: f64,
    connections: f64,
    processes: f64,
    active: f64,
    waiting: f64,
    refused: f64,
    finished: f64,
    cpu: f64,
    memory: f64,
    /// The seconds of the samples that have the work of workers.
    with_work: f64,
    errors: f64,
    /// The seconds of the samples that have answers.
    with_answers: f64,
    /// The answers by their time.
    times: [u64; BUCKETS],
}

const DEFAULT_SECONDS: u64 = 3600;
/// A chart has about this number of points.
const POINTS: u64 = 240;
/// The shortest interval, in seconds: a sample's.
const MIN_STEP: u64 = 5;
/// The number of applications that a chart of all lists.
const MAX_LISTED: usize = 200;

// === impl Query ===

impl Query {
    /// From the query of a URL: `seconds=3600&application=shop`. Other names are ignored.
    pub fn parse(query: &str) -> Query {
        let mut parsed = Query { seconds: DEFAULT_SECONDS, application: None };
        for argument in howdah_config::parse_arguments(query) {
            let value = String::from_utf8_lossy(&argument.value).into_owned();
            match argument.name.as_ref() {
                b"seconds" => parsed.seconds = value.parse().unwrap_or(DEFAULT_SECONDS).clamp(60, MAX_SECONDS),
                b"application" if !value.is_empty() => parsed.application = Some(value),
                _ => {}
            }
        }
        parsed
    }

    /// The points and marks, as JSON.
    pub fn answer(&self, store: &Store, now: u64) -> Value {
        let step = (self.seconds / POINTS).max(MIN_STEP);
        let first = (now.saturating_sub(self.seconds)) / step;
        let count = usize::try_from(now / step - first + 1).unwrap_or_default();
        let mut points = vec![Point::default(); count];
        let mut listed: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for sample in store.samples(first * step) {
            let index = usize::try_from((sample.time.saturating_sub(1)) / step - first).unwrap_or(usize::MAX);
            let Some(point) = points.get_mut(index) else { continue };
            point.add(sample, self.application.as_deref());
            for (name, numbers) in sample.applications.iter().filter(|(name, _)| !name.is_empty()) {
                let (finished, refused) = listed.entry(name).or_default();
                *finished += numbers.work.map_or(0.0, |work| f64::from(work.finished)) * f64::from(sample.seconds);
                *refused += f64::from(numbers.refused);
            }
        }
        let of = |value: fn(&Point) -> f64, weight: fn(&Point) -> f64| -> Vec<Option<f64>> {
            let mean = |point: &Point| (weight(point) > 0.0).then(|| rounded(value(point) / weight(point)));
            points.iter().map(mean).collect()
        };
        let covered: fn(&Point) -> f64 = |point| point.covered;
        let with_work: fn(&Point) -> f64 = |point| point.with_work;
        let concerns = |application: Option<&String>| {
            self.application.is_none() || application.is_none() || application == self.application.as_ref()
        };
        let marks: Vec<_> = store.marks(first * step).filter(|mark| concerns(mark.application.as_ref())).collect();
        let mut listed: Vec<_> = listed.into_iter().collect();
        listed.sort_by(|(_, (one, _)), (_, (other, _))| other.total_cmp(one));
        listed.truncate(MAX_LISTED);
        json!({
            "times": (0..points.len() as u64).map(|index| (first + index + 1) * step).collect::<Vec<_>>(),
            "step": step,
            "application": self.application,
            "requests": of(|point| point.requests, |point| point.with_requests),
            "connections": of(|point| point.connections, covered),
            "series": {
                "finished": of(|point| point.finished, with_work),
                "refused": of(|point| point.refused, covered),
                "active": of(|point| point.active, covered),
                "waiting": of(|point| point.waiting, covered),
                "processes": of(|point| point.processes, covered),
                // Little's law: the mean number of requests is their rate multiplied with their mean time.
                "seconds": of(|point| point.active, |point| if point.with_work > 0.0 { point.finished } else { 0.0 }),
                "errors": of(|point| point.errors, |point| point.with_answers),
                "p50": points.iter().map(|point| percentile(&point.times, 0.5)).collect::<Vec<_>>(),
                "p95": points.iter().map(|point| percentile(&point.times, 0.95)).collect::<Vec<_>>(),
                "p99": points.iter().map(|point| percentile(&point.times, 0.99)).collect::<Vec<_>>(),
                "cpu": of(|point| point.cpu, with_work),
                "memory": of(|point| point.memory, with_work),
            },
            "applications": listed.iter().map(|(name, (finished, refused))| json!({
                "name": name, "finished": rounded(*finished), "refused": refused,
            })).collect::<Vec<_>>(),
            "marks": marks,
        })
    }
}

// === impl Point ===

impl Point {
    /// Adds a sample: of one application, or of all together.
    fn add(&mut self, sample: &Sample, application: Option<&str>) {
        let seconds = f64::from(sample.seconds);
        self.covered += seconds;
        self.connections += sample.connections as f64 * seconds;
        if let Some(requests) = sample.requests {
            self.requests += requests as f64;
            self.with_requests += seconds;
        }
        let (mut has_work, mut has_answers) = (false, false);
        let chosen = |(name, _): &(&String, &Numbers)| application.is_none_or(|application| *name == application);
        for (_, numbers) in sample.applications.iter().filter(chosen) {
            self.processes += f64::from(numbers.processes) * seconds;
            self.active += f64::from(numbers.active) * seconds;
            self.waiting += f64::from(numbers.waiting) * seconds;
            self.refused += f64::from(numbers.refused);
            if let Some(answers) = &numbers.answers {
                has_answers = true;
                self.add_answers(answers);
            }
            if let Some(work) = numbers.work {
                has_work = true;
                self.finished += f64::from(work.finished) * seconds;
                self.cpu += f64::from(work.cpu) * seconds;
                self.memory += work.memory as f64 * seconds;
            }
        }
        if has_work {
            self.with_work += seconds;
        }
        if has_answers {
            self.with_answers += seconds;
        }
    }

    fn add_answers(&mut self, answers: &Answers) {
        self.errors += f64::from(answers.errors);
        for (sum, count) in self.times.iter_mut().zip(&answers.times) {
            *sum += u64::from(*count);
        }
    }
}

/// Enough digits for a chart.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dashboard::history::record::{Mark, MarkKind, Record, Work};
    use crate::commands::dashboard::history::store::MAX_BYTES;

    fn store() -> Store {
        let mut store = Store::open(Err("none".to_owned()), MAX_BYTES, 100_000);
        for index in 1..=24 {
            let work = Work { finished: 10.0, cpu: 0.5, memory: 100 };
            let answers = Answers { errors: 10, times: vec![0, 0, 0, 0, 100] };
            let shop =
                Numbers { processes: 4, active: 2, waiting: 1, refused: 5, work: Some(work), answers: Some(answers) };
            let blog = Numbers { processes: 1, ..Numbers::default() };
            let applications = [("shop".to_owned(), shop), ("blog".to_owned(), blog)].into();
            let sample = Sample {
                time: 100_000 - 5 * (24 - index),
                seconds: 5.0,
                requests: Some(60),
                connections: 7,
                applications,
            };
            store.add(Record::Sample(sample));
        }
        for application in [None, Some("shop"), Some("blog")] {
            let application = application.map(str::to_owned);
            let mark = Mark {
                time: 99_990,
                kind: MarkKind::Workers,
                application,
                text: "x".into(),
                etag: None,
                changes: vec![],
            };
            store.add(Record::Mark(mark));
        }
        store
    }

    fn last(value: &Value, name: &str) -> Value {
        value.pointer(name).unwrap().as_array().unwrap().iter().rev().find(|value| !value.is_null()).unwrap().clone()
    }

    #[test]
    fn the_query_has_defaults_and_limits() {
        let query = |seconds, application: Option<&str>| Query { seconds, application: application.map(str::to_owned) };
        for (text, expected) in [
            ("", query(3600, None)),
            ("seconds=900&application=a%20b%2Fc", query(900, Some("a b/c"))),
            ("seconds=1", query(60, None)),
            ("seconds=99999999", query(MAX_SECONDS, None)),
            ("seconds=x&application=&y=%zz", query(3600, None)),
        ] {
            assert_eq!(Query::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn points_are_means_of_their_samples() {
        let store = store();
        for (text, processes, marks) in
            [("seconds=900", 5.0, 3), ("seconds=14400&application=shop", 4.0, 2), ("application=blog", 1.0, 2)]
        {
            let answer = Query::parse(text).answer(&store, 100_000);
            let count = answer["times"].as_array().unwrap().len();
            assert!((POINTS as usize - 60..=POINTS as usize + 2).contains(&count), "{text}: {count}");
            assert_eq!(last(&answer, "/requests"), 12.0, "{text}");
            assert_eq!(last(&answer, "/series/processes"), processes, "{text}");
            assert_eq!(answer["marks"].as_array().unwrap().len(), marks, "{text}");
            assert_eq!(answer["applications"][0]["name"], "shop");
            if processes > 1.0 {
                let values =
                    ["finished", "refused", "active", "seconds"].map(|name| last(&answer, &format!("/series/{name}")));
                assert_eq!(values, [json!(10.0), json!(1.0), json!(2.0), json!(0.2)], "{text}");
            }
            assert_eq!(answer["series"]["active"][0], Value::Null, "before the first sample");
        }
        let idle = Query::parse("application=blog").answer(&store, 100_000);
        assert!(idle["series"]["finished"].as_array().unwrap().iter().all(Value::is_null));
    }
}
