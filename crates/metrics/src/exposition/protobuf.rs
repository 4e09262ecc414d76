//! Prometheus' protocol buffers: each family with its length before it. Histograms have native and classic buckets.

use crate::exposition::messages::{Bucket, BucketSpan, Histogram, LabelPair, Metric, MetricFamily, MetricType, Value};
use crate::exposition::sample::{Labels, plain};
use crate::families::{Family, Kind};
use crate::histogram::{self, SCHEMA, ZERO_THRESHOLD};
use prost::Message;

/// The families so far.
#[derive(Debug, Default)]
pub struct Protobuf {
    encoded: Vec<u8>,
    /// The family whose samples are written.
    family: MetricFamily,
}

const NANOSECONDS: f64 = 1e9;

// === impl Protobuf ===

impl Protobuf {
    /// A sample follows that is the first one of its family.
    pub fn begin(&mut self, family: &Family) {
        self.end();
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Info => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        self.family = MetricFamily {
            name: Some(family.sample_name()),
            help: Some(family.help.to_owned()),
            r#type: Some(kind.into()),
            metric: Vec::new(),
            unit: family.unit().map(str::to_owned),
        };
    }

    /// A sample.
    pub fn sample(&mut self, family: &Family, labels: Labels<'_>, value: f64) {
        let (label, value) = (pairs(labels), Some(Value { value: Some(value) }));
        self.family.metric.push(match family.kind {
            Kind::Counter => Metric { label, counter: value, ..Metric::default() },
            _ => Metric { label, gauge: value, ..Metric::default() },
        });
    }

    /// A histogram.
    pub fn histogram(&mut self, labels: Labels<'_>, words: &[u64]) {
        let classic = histogram::classic(words).map(|(label, count)| Bucket {
            cumulative_count: Some(count),
            upper_bound: Some(label.parse().unwrap_or(f64::INFINITY)),
        });
        let (zero, buckets) = histogram::native(words);
        let (positive_span, positive_delta) = spans(&buckets);
        let histogram = Histogram {
            sample_count: Some(histogram::count(words)),
            sample_sum: Some(histogram::sum(words) as f64 / NANOSECONDS),
            bucket: classic.collect(),
            schema: Some(SCHEMA),
            zero_threshold: Some(ZERO_THRESHOLD),
            zero_count: Some(zero),
            positive_span,
            positive_delta,
        };
        self.family.metric.push(Metric { label: pairs(labels), histogram: Some(histogram), ..Metric::default() });
    }

    /// All families.
    pub fn finish(mut self) -> Vec<u8> {
        self.end();
        self.encoded
    }

    fn end(&mut self) {
        let family = std::mem::take(&mut self.family);
        if !family.metric.is_empty() {
            self.encoded.extend(family.encode_length_delimited_to_vec());
        }
    }
}

/// The families of such an exposition, as far as it can be read.
pub fn decode(mut encoded: &[u8]) -> Vec<MetricFamily> {
    std::iter::from_fn(|| MetricFamily::decode_length_delimited(&mut encoded).ok().filter(|f| f.name.is_some()))
        .collect()
}

fn pairs(labels: Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| LabelPair {
        name: Some((*name).to_owned()),
        value: Some(value.chars().map(plain).collect()),
    };
    labels.iter().map(pair).collect()
}

/// Buckets whose indices follow each other are one span.
fn spans(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::with_capacity(buckets.len()));
    let (mut next, mut before) = (0, 0);
    for (index, count) in buckets {
        match spans.last_mut() {
            Some(span) if *index == next => span.length = span.length.map(|length| length + 1),
            _ => spans.push(BucketSpan { offset: Some(index - next), length: Some(1) }),
        }
        deltas.push((*count as i64).wrapping_sub(before));
        (next, before) = (index + 1, *count as i64);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Exposition, Format};
    use crate::families;
    use std::time::Duration;

    #[test]
    fn families_are_messages_with_their_length() {
        let mut exposition = Exposition::new(Format::Protobuf);
        exposition.family(&families::BUILD);
        exposition.sample(&[("version", "1\"\\\n\u{1b}")], 1);
        exposition.family(&families::WORKERS);
        exposition.family(&families::CONNECTIONS_ACCEPTED);
        exposition.sample(&[], 7_u64);
        let found = decode(&exposition.finish());
        let names: Vec<_> = found.iter().map(MetricFamily::name).collect();
        assert_eq!(
            names,
            ["howdah_build_info", "howdah_connections_accepted_total"],
            "a family without samples is left out"
        );
        assert_eq!(found[0].metric[0].label[0].value(), "1\"\\\n\u{fffd}");
        assert_eq!((found[0].r#type(), found[1].r#type()), (MetricType::Gauge, MetricType::Counter));
        assert_eq!(found[1].metric[0].counter, Some(Value { value: Some(7.0) }));
        assert_eq!(decode(b"\xff\xff"), []);
    }

    #[test]
    fn a_histogram_has_native_and_classic_buckets_of_the_same_times() {
        let mut words = [0; histogram::WORDS];
        for milliseconds in [0, 1000, 1050, 990, 4000] {
            let (bucket, nanoseconds) = histogram::bucket(Duration::from_millis(milliseconds));
            words[bucket] += 1;
            words[histogram::BUCKETS] += nanoseconds;
        }
        let mut exposition = Exposition::new(Format::Protobuf);
        exposition.family(&families::PHP_TIME);
        exposition.histogram(&[("application", "a"), ("route", "r"), ("responder", "application")], &words);
        let found = decode(&exposition.finish());
        assert_eq!((found[0].r#type(), found[0].unit()), (MetricType::Histogram, "seconds"));
        let histogram = found[0].metric[0].histogram.as_ref().expect("a histogram");
        assert_eq!((histogram.sample_count(), histogram.sample_sum(), histogram.zero_count()), (5, 7.04, 1));
        // 1 s is the end of the index 0, 4 s that of 16.
        let spans = [(0, 2), (14, 1)].map(|(offset, length)| BucketSpan { offset: Some(offset), length: Some(length) });
        assert_eq!((histogram.schema(), histogram.positive_span.as_slice()), (3, spans.as_slice()));
        assert_eq!(histogram.positive_delta, [2, -1, 0]);
        let classic = |bound: f64| {
            histogram.bucket.iter().find(|bucket| bucket.upper_bound() == bound).map(Bucket::cumulative_count)
        };
        assert_eq!([0.0005, 1.0, 2.5, 5.0, f64::INFINITY].map(classic), [1, 3, 4, 5, 5].map(Some));
    }
}
