//! The messages of Prometheus' protocol buffers, as far as howdah writes them. Names and numbers are those of `metrics.proto` of
//! prometheus/client_model. A field that is not here is one that howdah does not set.

use prost::{Enumeration, Message};

/// The samples of one family.
#[derive(Clone, PartialEq, Message)]
pub struct MetricFamily {
    /// Its name, with the suffix of a counter or an information.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its meaning.
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    /// Its kind.
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    pub r#type: Option<i32>,
    /// Its samples.
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<Metric>,
    /// Its unit, if it has one.
    #[prost(string, optional, tag = "5")]
    pub unit: Option<String>,
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
pub enum MetricType {
    /// It only grows.
    Counter = 0,
    /// It goes up and down.
    Gauge = 1,
    /// Buckets.
    Histogram = 4,
}

/// A sample.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// Its labels.
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    /// The value of a gauge.
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Value>,
    /// The value of a counter.
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Value>,
    /// The buckets of a histogram.
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<Histogram>,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LabelPair {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// The messages `Gauge` and `Counter`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Value {
    /// The number.
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
}

/// A histogram with buckets of both kinds.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    /// How many times there are.
    #[prost(uint64, optional, tag = "1")]
    pub sample_count: Option<u64>,
    /// Their sum.
    #[prost(double, optional, tag = "2")]
    pub sample_sum: Option<f64>,
    /// The classic buckets.
    #[prost(message, repeated, tag = "3")]
    pub bucket: Vec<Bucket>,
    /// The resolution of the native buckets.
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    /// The bound of the bucket of zero.
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    /// How many times are in it.
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    /// The native buckets that have any times, in rows.
    #[prost(message, repeated, tag = "12")]
    pub positive_span: Vec<BucketSpan>,
    /// Their numbers, each as its difference from the one before it.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub positive_delta: Vec<i64>,
}

/// A classic bucket.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Bucket {
    /// How many times are in it and in those below it.
    #[prost(uint64, optional, tag = "1")]
    pub cumulative_count: Option<u64>,
    /// Its bound; the last one is infinite.
    #[prost(double, optional, tag = "2")]
    pub upper_bound: Option<f64>,
}

/// Native buckets whose indices follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct BucketSpan {
    /// The index of the first one, or the number of empty buckets between it and the row before.
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    /// Their number.
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}
