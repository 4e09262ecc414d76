//! The records of a time become the points of a chart: equal intervals, each with the mean of its samples.

use crate::commands::dashboard::history::record::{Numbers, Sample};
use crate::commands::dashboard::history::store::{MAX_SECONDS, Store};
use crate::control_client::traffic::{Traffic, percentile};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Options in the query of the URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The length of the time, which ends now.
    seconds: u64,
    /// One application; `None` is all.
    application: Option<String>,
    /// One route; `None` is all.
    route: Option<String>,
}

/// The sums of one interval.
#[derive(Clone, Debug, Default)]
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
    /// The seconds of the samples that have answers.
    with_answers: f64,
    answers: Traffic,
}

/// An application in the time of a query.
#[derive(Clone, Debug, Default)]
struct Listed {
    finished: f64,
    answers: Traffic,
}

const DEFAULT_SECONDS: u64 = 3600;
/// A chart has about this number of points.
const POINTS: u64 = 240;
/// The shortest interval, in seconds: a sample's.
const MIN_STEP: u64 = 5;
/// The number of applications that a chart of all lists.
const MAX_LISTED: usize = 200;
/// The number of routes that a chart lists.
const MAX_ROUTES: usize = 50;

// === impl Query ===

impl Query {
    /// From the query of a URL: `seconds=3600&application=shop&route=routes/0`. Other names are ignored.
    pub fn parse(query: &str) -> Query {
        let mut parsed = Query { seconds: DEFAULT_SECONDS, application: None, route: None };
        for argument in howdah_config::parse_arguments(query) {
            let value = String::from_utf8_lossy(&argument.value).into_owned();
            match argument.name.as_ref() {
                b"seconds" => parsed.seconds = value.parse().unwrap_or(DEFAULT_SECONDS).clamp(60, MAX_SECONDS),
                b"application" if !value.is_empty() => parsed.application = Some(value),
                b"route" if !value.is_empty() => parsed.route = Some(value),
                _ => {}
            }
        }
        parsed
    }

    /// Whether the query is for this application.
    fn is_of(&self, application: &str) -> bool {
        self.application.as_deref().is_none_or(|wanted| wanted == application)
    }

    /// The points and marks, as JSON.
    pub fn answer(&self, store: &Store, now: u64) -> Value {
        let step = (self.seconds / POINTS).max(MIN_STEP);
        let first = (now.saturating_sub(self.seconds)) / step;
        let count = usize::try_from(now / step - first + 1).unwrap_or_default();
        let mut points = vec![Point::default(); count];
        let mut listed: BTreeMap<&str, Listed> = BTreeMap::new();
        let mut routes: BTreeMap<(&str, &str), Traffic> = BTreeMap::new();
        for sample in store.samples(first * step) {
            let index = usize::try_from((sample.time.saturating_sub(1)) / step - first).unwrap_or(usize::MAX);
            let Some(point) = points.get_mut(index) else { continue };
            point.add(sample, self);
            for (name, numbers) in &sample.applications {
                let listed = listed.entry(name).or_default();
                listed.finished +=
                    numbers.work.map_or(0.0, |work| f64::from(work.finished) * f64::from(sample.seconds));
                numbers.answers.iter().for_each(|answers| listed.answers.add(&answers.traffic()));
            }
            for route in sample.routes.iter().filter(|route| self.is_of(&route.application)) {
                routes.entry((&route.application, &route.route)).or_default().add(&route.answers.traffic());
            }
        }
        let of = |value: fn(&Point) -> f64, weight: fn(&Point) -> f64| -> Vec<Option<f64>> {
            let mean = |point: &Point| (weight(point) > 0.0).then(|| rounded(value(point) / weight(point)));
            points.iter().map(mean).collect()
        };
        let covered: fn(&Point) -> f64 = |point| point.covered;
        let with_work: fn(&Point) -> f64 = |point| point.with_work;
        let concerns = |application: Option<&String>| application.is_none_or(|name| self.is_of(name));
        let marks: Vec<_> = store.marks(first * step).filter(|mark| concerns(mark.application.as_ref())).collect();
        let mut listed: Vec<_> = listed.into_iter().collect();
        listed.sort_by(|(_, one), (_, other)| other.rank().total_cmp(&one.rank()));
        listed.truncate(MAX_LISTED);
        let mut routes: Vec<_> = routes.into_iter().collect();
        routes.sort_by_key(|(_, sum)| Reverse(sum.requests));
        routes.truncate(MAX_ROUTES);
        let causes: BTreeSet<&String> = points.iter().flat_map(|point| point.answers.refused.keys()).collect();
        let refused_by: Map<String, Value> =
            causes.into_iter().map(|cause| (cause.clone(), refused(&points, cause))).collect();
        json!({
            "times": (0..points.len() as u64).map(|index| (first + index + 1) * step).collect::<Vec<_>>(),
            "step": step,
            "application": self.application,
            "route": self.route,
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
                "answered": of(|point| point.answers.requests as f64, |point| point.with_answers),
                "errors": of(|point| point.answers.errors as f64, |point| point.with_answers),
                "p50": points.iter().map(|point| percentile(&point.answers.times, 0.5)).collect::<Vec<_>>(),
                "p95": points.iter().map(|point| percentile(&point.answers.times, 0.95)).collect::<Vec<_>>(),
                "p99": points.iter().map(|point| percentile(&point.answers.times, 0.99)).collect::<Vec<_>>(),
                "cpu": of(|point| point.cpu, with_work),
                "memory": of(|point| point.memory, with_work),
            },
            "refused_by": refused_by,
            "applications": listed.iter().map(|(name, listed)| {
                let mut value = json_of(&listed.answers);
                value["name"] = json!(name);
                value["finished"] = json!(rounded(listed.finished));
                value
            }).collect::<Vec<_>>(),
            "routes": routes.iter().map(|((application, route), sum)| {
                let mut value = json_of(sum);
                value["application"] = json!(application);
                value["route"] = json!(route);
                value
            }).collect::<Vec<_>>(),
            "marks": marks,
        })
    }
}

/// The refused requests per second with this cause.
fn refused(points: &[Point], cause: &str) -> Value {
    let of = |point: &Point| {
        let count = point.answers.refused.get(cause).copied().unwrap_or_default();
        (point.with_answers > 0.0).then(|| rounded(count as f64 / point.with_answers))
    };
    points.iter().map(of).collect()
}

fn json_of(answers: &Traffic) -> Value {
    json!({
        "answered": answers.requests,
        "errors": answers.errors,
        "refused": answers.refused,
        "p50": percentile(&answers.times, 0.5),
        "p95": percentile(&answers.times, 0.95),
        "p99": percentile(&answers.times, 0.99),
    })
}

// === impl Listed ===

impl Listed {
    /// The busiest comes first. A howdah without metrics counts what PHP has finished.
    fn rank(&self) -> f64 {
        self.finished.max(self.answers.requests as f64)
    }
}

// === impl Point ===

impl Point {
    /// Adds a sample: of one application or route, or of all together.
    fn add(&mut self, sample: &Sample, query: &Query) {
        let seconds = f64::from(sample.seconds);
        self.covered += seconds;
        self.connections += sample.connections as f64 * seconds;
        if let Some(requests) = sample.requests {
            self.requests += requests as f64;
            self.with_requests += seconds;
        }
        let (mut has_work, mut has_answers) = (false, false);
        if let Some(wanted) = &query.route {
            // A route that had no answer is not in the sample.
            has_answers = sample.applications.values().any(|numbers| numbers.answers.is_some());
            for route in sample.routes.iter().filter(|one| query.is_of(&one.application) && one.route == *wanted) {
                self.answers.add(&route.answers.traffic());
            }
        }
        let chosen = |(name, _): &(&String, &Numbers)| query.is_of(name);
        for (_, numbers) in sample.applications.iter().filter(chosen) {
            self.processes += f64::from(numbers.processes) * seconds;
            self.active += f64::from(numbers.active) * seconds;
            self.waiting += f64::from(numbers.waiting) * seconds;
            self.refused += f64::from(numbers.refused);
            if let Some(answers) = numbers.answers.as_ref().filter(|_| query.route.is_none()) {
                has_answers = true;
                self.answers.add(&answers.traffic());
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
}

/// Enough digits for a chart.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::dashboard::history::record::{Answers, Mark, MarkKind, Record, RouteAnswers, Work};
    use crate::commands::dashboard::history::store::MAX_BYTES;

    fn store() -> Store {
        let mut store = Store::open(Err("none".to_owned()), MAX_BYTES, 100_000);
        for index in 1..=24 {
            let work = Work { finished: 10.0, cpu: 0.5, memory: 100 };
            let answers =
                Answers { errors: 10, times: vec![0, 0, 0, 0, 100], refused: [("queue".to_owned(), 5)].into() };
            let slow = Answers { times: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 10], ..Answers::default() };
            let route = |application: &str, answers: &Answers| RouteAnswers {
                application: application.to_owned(),
                route: "routes/1".to_owned(),
                answers: answers.clone(),
            };
            let routes = vec![route("shop", &slow), route("", &answers)];
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
                routes,
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
        let query = |seconds, application: Option<&str>, route: Option<&str>| Query {
            seconds,
            application: application.map(str::to_owned),
            route: route.map(str::to_owned),
        };
        for (text, expected) in [
            ("", query(3600, None, None)),
            ("seconds=900&application=a%20b%2Fc", query(900, Some("a b/c"), None)),
            ("seconds=1&route=routes%2F0", query(60, None, Some("routes/0"))),
            ("seconds=99999999", query(MAX_SECONDS, None, None)),
            ("seconds=x&application=&route=&y=%zz", query(3600, None, None)),
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
        let all = Query::parse("seconds=900").answer(&store, 100_000);
        assert_eq!((last(&all, "/refused_by/queue"), last(&all, "/series/answered")), (json!(1.0), json!(20.0)));
        let idle = Query::parse("application=blog").answer(&store, 100_000);
        assert!(idle["series"]["finished"].as_array().unwrap().iter().all(Value::is_null));
    }

    #[test]
    fn routes_have_their_own_times() {
        let store = store();
        let all = Query::parse("seconds=900").answer(&store, 100_000);
        let routes = all["routes"].as_array().unwrap();
        assert_eq!((routes.len(), &routes[0]["application"], &routes[0]["answered"]), (2, &json!(""), &json!(2400)));
        assert_eq!((&routes[1]["p50"], &routes[1]["errors"]), (&json!(0.375), &json!(0)));
        let shop = &all["applications"][0];
        assert_eq!(
            (&shop["name"], &shop["refused"]["queue"], &shop["errors"]),
            (&json!("shop"), &json!(120), &json!(240))
        );

        let one = Query::parse("seconds=900&application=shop&route=routes%2F1").answer(&store, 100_000);
        assert_eq!((last(&one, "/series/p50"), last(&one, "/series/answered")), (json!(0.375), json!(2.0)));
        assert_eq!((last(&one, "/series/errors"), one["routes"].as_array().unwrap().len()), (json!(0.0), 1));
        let none = Query::parse("seconds=900&application=shop&route=gone").answer(&store, 100_000);
        assert_eq!(last(&none, "/series/answered"), 0.0);
    }
}
