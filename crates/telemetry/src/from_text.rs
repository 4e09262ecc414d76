//! The metrics of OTLP, made from the text of an exposition (OpenMetrics), which the supervisor makes for Prometheus: both
//! have the same names, labels and numbers.
//!
//! The text is howdah's own. A line that is not understood is left out.

use crate::messages::{
    Data, Gauge, Histogram, HistogramDataPoint, KeyValue, Metric, Number, NumberDataPoint, Sum, Temporality,
};
use std::collections::BTreeMap;

/// The family of the time since which counters count.
const START_TIME: &str = "howdah_start_time_seconds";
const NANOSECONDS: f64 = 1e9;

/// A line with a number.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<(&'t str, String)>,
    value: f64,
}

/// The metrics of this text, which was made at this time, in nanoseconds since 1970.
pub fn metrics(text: &str, now: u64) -> Vec<Metric> {
    let started = text.lines().filter_map(Sample::parse).find(|sample| sample.name == START_TIME);
    let start = started.map_or(0, |sample| (sample.value * NANOSECONDS) as u64);
    let mut metrics: Vec<Metric> = Vec::new();
    let mut family = Family::default();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (keyword, name, rest) = (words.next(), words.next().unwrap_or(""), words.next().unwrap_or(""));
            match keyword {
                Some("TYPE") => {
                    metrics.extend(std::mem::take(&mut family).finish(start, now));
                    (family.name, family.kind) = (name.to_owned(), rest.to_owned());
                }
                Some("UNIT") => family.unit = rest.to_owned(),
                Some("HELP") => family.help = unescaped(rest),
                _ => {}
            }
        } else if let Some(sample) = Sample::parse(line) {
            family.add(sample);
        }
    }
    metrics.extend(family.finish(start, now));
    metrics
}

#[derive(Default)]
struct Family {
    name: String,
    kind: String,
    unit: String,
    help: String,
    points: Vec<(Vec<(String, String)>, f64)>,
    histograms: BTreeMap<Vec<(String, String)>, Buckets>,
}

/// The buckets of a histogram, each with those below it.
#[derive(Default)]
struct Buckets {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

// === impl Family ===

impl Family {
    fn add(&mut self, sample: Sample<'_>) {
        let mut labels: Vec<_> = sample.labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if self.kind != "histogram" {
            self.points.push((labels, sample.value));
            return;
        }
        let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
        let buckets = self.histograms.entry(labels).or_default();
        match (sample.name.strip_prefix(self.name.as_str()), bound) {
            (Some("_bucket"), Some(bound)) => {
                buckets.bounds.extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
                buckets.counts.push(sample.value as u64);
            }
            (Some("_sum"), _) => buckets.sum = sample.value,
            (Some("_count"), _) => buckets.count = sample.value as u64,
            _ => {}
        }
    }

    fn finish(self, start: u64, now: u64) -> Option<Metric> {
        let point = |(labels, value): (Vec<(String, String)>, f64), start| NumberDataPoint {
            attributes: attributes(&labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(match value.fract() == 0.0 && value.abs() < (1_u64 << 53) as f64 {
                true => Number::Int(value as i64),
                false => Number::Double(value),
            }),
        };
        let temporality = Temporality::Cumulative.into();
        let data = match self.kind.as_str() {
            "counter" => Data::Sum(Sum {
                data_points: self.points.into_iter().map(|each| point(each, start)).collect(),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            "gauge" | "info" => {
                Data::Gauge(Gauge { data_points: self.points.into_iter().map(|each| point(each, 0)).collect() })
            }
            "histogram" => {
                let of_labels =
                    |(labels, buckets): (Vec<(String, String)>, Buckets)| buckets.finish(&labels, start, now);
                let data_points = self.histograms.into_iter().map(of_labels).collect();
                Data::Histogram(Histogram { data_points, aggregation_temporality: temporality })
            }
            _ => return None,
        };
        let unit = match self.unit.as_str() {
            "seconds" => "s".to_owned(),
            "bytes" => "By".to_owned(),
            _ => "1".to_owned(),
        };
        Some(Metric { name: self.name, description: self.help, unit, data: Some(data) })
    }
}

// === impl Buckets ===

impl Buckets {
    fn finish(self, labels: &[(String, String)], start: u64, now: u64) -> HistogramDataPoint {
        let before = std::iter::once(0).chain(self.counts.iter().copied());
        let bucket_counts = self.counts.iter().zip(before).map(|(count, before)| count.saturating_sub(before));
        HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            count: self.count,
            sum: Some(self.sum),
            bucket_counts: bucket_counts.collect(),
            explicit_bounds: self.bounds,
        }
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::text(name, value.as_str())).collect()
}

// === impl Sample ===

impl Sample<'_> {
    /// `name{label="value",…} number`
    fn parse(line: &str) -> Option<Sample<'_>> {
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(after) = rest.strip_prefix('{') {
            rest = after;
            while !rest.starts_with('}') {
                let (label, after) = rest.split_once("=\"")?;
                let end = end_of_value(after)?;
                labels.push((label.trim_start_matches(','), unescaped(&after[..end])));
                rest = &after[end + 1..];
            }
            rest = &rest[1..];
        }
        let value = rest.trim().split(' ').next()?.parse().ok()?;
        Some(Sample { name, labels, value })
    }
}

/// Where the quotation mark at the end of a label's value is.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_metrics::exposition::{Exposition, Format};
    use howdah_metrics::{families, histogram};

    #[test]
    fn the_text_of_the_supervisor_becomes_metrics() {
        let mut text = Exposition::new(Format::OpenMetrics);
        text.family(&families::START_TIME);
        text.sample(&[], 1_700_000_000.5);
        text.family(&families::WORKERS);
        text.sample(&[("application", "a\"b\\c,d}\n"), ("state", "idle")], 3);
        text.family(&families::ROUTER_STARTS);
        text.sample(&[], 2);
        text.family(&families::PHP_TIME);
        let mut words = [0; histogram::BUCKETS + 1];
        (words[0], words[histogram::BUCKETS - 1], words[histogram::BUCKETS]) = (2, 1, 1_500_000_000);
        text.histogram(&[("application", "a"), ("route", ""), ("responder", "application")], &words);
        let metrics = metrics(&text.finish(), 9);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(
            names,
            ["howdah_start_time_seconds", "howdah_workers", "howdah_router_starts", "howdah_request_php_seconds",]
        );
        let Some(Data::Gauge(workers)) = &metrics[1].data else { panic!("a gauge") };
        let labels = [KeyValue::text("application", "a\"b\\c,d}\n"), KeyValue::text("state", "idle")];
        assert_eq!(workers.data_points[0].attributes, labels);
        assert_eq!(workers.data_points[0].value, Some(Number::Int(3)));
        let Some(Data::Sum(starts)) = &metrics[2].data else { panic!("a sum") };
        assert!(starts.is_monotonic);
        assert_eq!(starts.data_points[0].start_time_unix_nano, 1_700_000_000_500_000_000);
        let Some(Data::Histogram(times)) = &metrics[3].data else { panic!("a histogram") };
        let point = &times.data_points[0];
        assert_eq!((point.count, point.sum, point.time_unix_nano), (3, Some(1.5), 9));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!((point.bucket_counts[0], point.bucket_counts.iter().sum::<u64>()), (2, 3));
        assert_eq!(metrics[3].unit, "s");
    }

    #[test]
    fn other_lines_are_left_out() {
        for text in ["", "# EOF\n", "a{", "a{b=\"c", "a{b=\"c\"} x\n", "# TYPE a b\na 1\n", "\u{e9}\u{e9}", "a{}}} 1"] {
            assert_eq!(metrics(text, 0), [], "{text:?}");
        }
    }
}
