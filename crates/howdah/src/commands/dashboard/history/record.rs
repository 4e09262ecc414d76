//! The records. A record is one line of JSON with short names: there are thousands.

use crate::control_client::traffic::Traffic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// An event.
    Mark(Mark),
    /// An interval.
    Sample(Sample),
}

/// An interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end, in seconds since 1970.
    #[serde(rename = "t")]
    pub time: u64,
    /// Its length in seconds.
    #[serde(rename = "s")]
    pub seconds: f32,
    /// The finished requests of all listeners; `None` if the router was replaced meanwhile.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// The connections that were open at its end.
    #[serde(rename = "c")]
    pub connections: u64,
    /// The applications.
    #[serde(rename = "a")]
    pub applications: BTreeMap<String, Numbers>,
    /// The routes with most answers, if howdah counts them.
    #[serde(rename = "o", default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteAnswers>,
}

/// The answers of a route during an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteAnswers {
    /// The application; empty for files, proxies and redirects.
    #[serde(rename = "a", default, skip_serializing_if = "String::is_empty")]
    pub application: String,
    /// As in the label `route` of the metrics.
    #[serde(rename = "r", default, skip_serializing_if = "String::is_empty")]
    pub route: String,
    /// Its answers.
    #[serde(flatten)]
    pub answers: Answers,
}

/// An application during an interval. Numbers of processes and requests are those at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Its processes.
    #[serde(rename = "p", default, skip_serializing_if = "is_zero")]
    pub processes: u32,
    /// Its running requests.
    #[serde(rename = "a", default, skip_serializing_if = "is_zero")]
    pub active: u32,
    /// Its queue.
    #[serde(rename = "w", default, skip_serializing_if = "is_zero")]
    pub waiting: u32,
    /// The requests that were refused.
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    pub refused: u32,
    /// From its workers, if they were read in this interval.
    #[serde(flatten)]
    pub work: Option<Work>,
    /// Its answers, if howdah counts them.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
}

/// The answers of an application or of a route during an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The answers with a status of 500 or more.
    #[serde(rename = "e", default, skip_serializing_if = "is_zero")]
    pub errors: u32,
    /// All answers, by buckets of their time. Empty buckets at the end are left out.
    #[serde(rename = "b", default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<u32>,
    /// The refused requests, by cause.
    #[serde(rename = "x", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u32>,
}

/// The work of the workers of an application since they were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The requests that they finished, per second.
    #[serde(rename = "f")]
    pub finished: f32,
    /// The processors that they used.
    #[serde(rename = "u")]
    pub cpu: f32,
    /// Their memory in bytes.
    #[serde(rename = "m")]
    pub memory: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// When, in seconds since 1970.
    pub time: u64,
    /// Its kind.
    pub kind: MarkKind,
    /// The application that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// For a person.
    pub text: String,
    /// The ETag of the configuration from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The changes of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

/// The kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkKind {
    /// The dashboard was started.
    Dashboard,
    /// The configuration was changed.
    Configuration,
    /// All workers of an application are new, in the same generation.
    Workers,
    /// An application has a new generation, from another release.
    Deploy,
    /// An application has a new generation from the same release.
    Restart,
    /// The router was replaced, or howdah was restarted.
    Router,
    /// howdah does not answer.
    Lost,
    /// howdah answers again.
    Found,
}

/// One change in a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Where.
    pub path: String,
    /// The value before, as JSON; `None` if there was none. Long values are cut.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
}

// === impl Answers ===

impl Answers {
    /// The answers of this traffic.
    pub fn of(traffic: &Traffic) -> Answers {
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let mut times: Vec<u32> = traffic.times.iter().map(|count| short(*count)).collect();
        while times.last() == Some(&0) {
            times.pop();
        }
        let refused = traffic.refused.iter().map(|(cause, count)| (cause.clone(), short(*count))).collect();
        Answers { errors: short(traffic.errors), times, refused }
    }

    /// The traffic that they are. A bucket that this version does not know is left out.
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic { errors: self.errors.into(), ..Traffic::default() };
        for (sum, count) in traffic.times.iter_mut().zip(&self.times) {
            *sum = u64::from(*count);
        }
        traffic.requests = traffic.times.iter().sum();
        traffic.refused = self.refused.iter().map(|(cause, count)| (cause.clone(), u64::from(*count))).collect();
        traffic
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_short_line() {
        let work = Work { finished: 12.5, cpu: 0.5, memory: 1024 };
        let numbers = Numbers { processes: 2, active: 1, work: Some(work), ..Numbers::default() };
        let sample = Sample {
            time: 7,
            seconds: 5.0,
            requests: Some(60),
            connections: 3,
            applications: [("a".to_owned(), numbers)].into(),
            routes: vec![RouteAnswers {
                application: "a".to_owned(),
                route: "routes/0".to_owned(),
                answers: Answers { errors: 1, ..Answers::default() },
            }],
        };
        let text = serde_json::to_string(&Record::Sample(sample.clone())).unwrap();
        let expected = concat!(
            r#"{"t":7,"s":5.0,"r":60,"c":3,"a":{"a":{"p":2,"a":1,"f":12.5,"u":0.5,"m":1024}},"#,
            r#""o":[{"a":"a","r":"routes/0","e":1}]}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), Record::Sample(sample));
        let idle: Numbers = serde_json::from_str("{}").unwrap();
        assert_eq!(idle, Numbers::default());
        let answers = Answers { times: vec![0, 3], ..Answers::default() };
        let counted = Numbers { answers: Some(answers), ..Numbers::default() };
        let text = serde_json::to_string(&counted).unwrap();
        assert_eq!((text.as_str(), serde_json::from_str::<Numbers>(&text).unwrap()), (r#"{"h":{"b":[0,3]}}"#, counted));
        let mark = Mark {
            time: 7,
            kind: MarkKind::Lost,
            application: None,
            text: "x".to_owned(),
            etag: None,
            changes: Vec::new(),
        };
        let text = serde_json::to_string(&Record::Mark(mark.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), Record::Mark(mark));
    }
}
