//! The metrics of OTLP, made from the families of Prometheus' protocol buffers: both have the same names, labels and numbers.

use crate::messages::{
    Data, Gauge, Histogram, HistogramDataPoint, KeyValue, Metric, Number, NumberDataPoint, Sum, Temporality,
};
use howdah_metrics::exposition::messages::{self as prometheus, MetricFamily, MetricType};
use howdah_metrics::exposition::protobuf::decode;
use howdah_metrics::families::{self, Kind};

const NANOSECONDS: f64 = 1e9;

/// The metrics of this exposition, which was made at this time, in nanoseconds since 1970.
pub fn metrics(exposition: &[u8], now: u64) -> Vec<Metric> {
    let families = decode(exposition);
    // Counters count since then.
    let started = families.iter().find(|family| family.name() == families::START_TIME.name);
    let started = started.and_then(|family| Some(family.metric.first()?.gauge?.value()));
    let start = started.map_or(0, |seconds| (seconds * NANOSECONDS) as u64);
    families.into_iter().map(|family| metric(family, start, now)).collect()
}

fn metric(family: MetricFamily, start: u64, now: u64) -> Metric {
    let temporality = Temporality::Cumulative.into();
    let (kind, samples) = (family.r#type(), &family.metric);
    let data = match kind {
        MetricType::Counter => Data::Sum(Sum {
            data_points: samples.iter().filter_map(|one| number(one, one.counter?, start, now)).collect(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        MetricType::Gauge => Data::Gauge(Gauge {
            data_points: samples.iter().filter_map(|one| number(one, one.gauge?, 0, now)).collect(),
        }),
        MetricType::Histogram => Data::Histogram(Histogram {
            data_points: samples.iter().filter_map(|one| buckets(one, start, now)).collect(),
            aggregation_temporality: temporality,
        }),
    };
    let name = family.name();
    let suffix = if kind == MetricType::Counter { Kind::Counter.suffix() } else { Kind::Info.suffix() };
    let name = name.strip_suffix(suffix).unwrap_or(name);
    let unit = match family.unit() {
        "seconds" => "s",
        "bytes" => "By",
        _ => "1",
    };
    Metric { name: name.to_owned(), description: family.help().to_owned(), unit: unit.to_owned(), data: Some(data) }
}

fn number(sample: &prometheus::Metric, value: prometheus::Value, start: u64, now: u64) -> Option<NumberDataPoint> {
    let value = value.value?;
    Some(NumberDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(match value.fract() == 0.0 && value.abs() < (1_u64 << 53) as f64 {
            true => Number::Int(value as i64),
            false => Number::Double(value),
        }),
    })
}

/// The classic buckets, each without those below it.
fn buckets(sample: &prometheus::Metric, start: u64, now: u64) -> Option<HistogramDataPoint> {
    let histogram = sample.histogram.as_ref()?;
    let counts = || histogram.bucket.iter().map(prometheus::Bucket::cumulative_count);
    let bounds = histogram.bucket.iter().map(prometheus::Bucket::upper_bound);
    Some(HistogramDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: histogram.sample_count(),
        sum: histogram.sample_sum,
        bucket_counts: counts()
            .zip(std::iter::once(0).chain(counts()))
            .map(|(c, below)| c.saturating_sub(below))
            .collect(),
        explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
    })
}

fn attributes(sample: &prometheus::Metric) -> Vec<KeyValue> {
    sample.label.iter().map(|label| KeyValue::text(label.name(), label.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_metrics::exposition::{Exposition, Format};
    use howdah_metrics::histogram;
    use std::time::Duration;

    #[test]
    fn the_numbers_of_the_supervisor_become_metrics() {
        let mut exposition = Exposition::new(Format::Protobuf);
        exposition.family(&families::BUILD);
        exposition.sample(&[("version", "1")], 1);
        exposition.family(&families::START_TIME);
        exposition.sample(&[], 1_700_000_000.5);
        exposition.family(&families::WORKERS);
        exposition.sample(&[("application", "a\"b\\c,d}\n"), ("state", "idle")], 3);
        exposition.family(&families::ROUTER_STARTS);
        exposition.sample(&[], 2);
        exposition.family(&families::PHP_TIME);
        let mut words = [0; histogram::WORDS];
        words[0] = 2;
        words[histogram::bucket(Duration::from_secs(60)).0] = 1;
        words[histogram::BUCKETS] = 1_500_000_000;
        exposition.histogram(&[("application", "a"), ("route", ""), ("responder", "application")], &words);
        let metrics = metrics(&exposition.finish(), 9);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        let expected = ["build", "start_time_seconds", "workers", "router_starts", "request_php_seconds"]
            .map(|n| format!("howdah_{n}"));
        assert_eq!(names, expected);
        let Some(Data::Gauge(workers)) = &metrics[2].data else { panic!("a gauge") };
        let labels = [KeyValue::text("application", "a\"b\\c,d}\n"), KeyValue::text("state", "idle")];
        assert_eq!(workers.data_points[0].attributes, labels);
        assert_eq!(workers.data_points[0].value, Some(Number::Int(3)));
        let Some(Data::Sum(starts)) = &metrics[3].data else { panic!("a sum") };
        assert!(starts.is_monotonic);
        assert_eq!(starts.data_points[0].start_time_unix_nano, 1_700_000_000_500_000_000);
        let Some(Data::Histogram(times)) = &metrics[4].data else { panic!("a histogram") };
        let point = &times.data_points[0];
        assert_eq!((point.count, point.sum, point.time_unix_nano), (3, Some(1.5), 9));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!((point.bucket_counts[0], point.bucket_counts.iter().sum::<u64>()), (2, 3));
        assert_eq!(metrics[4].unit, "s");
    }

    #[test]
    fn bytes_that_are_no_families_are_left_out() {
        for bytes in [b"".as_slice(), b"\xff", b"# EOF\n"] {
            assert_eq!(metrics(bytes, 0), [], "{bytes:?}");
        }
    }
}
