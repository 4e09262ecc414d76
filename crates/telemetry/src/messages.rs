//! The messages of OTLP 1, as far as howdah writes them. Names and numbers are those of opentelemetry-proto.
//!
//! The crate opentelemetry-proto has all messages, but depends on the SDK. A field that is not here is a field that
//! howdah does not set, which protocol buffers allow.

use prost::{Enumeration, Message, Oneof};

/// Spans, log records or metrics of one source. Several encoded ones in a row are one message with all their content:
/// therefore nothing has to be decoded on the way to a collector.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The source.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// Lines of one source.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    /// The source.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Its lines.
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

/// A line of a log.
#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// How bad it is.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// The same as a word.
    #[prost(string, tag = "3")]
    pub severity_text: String,
    /// The line.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// Its attributes.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    /// The id of its request's trace: 16 bytes, or none.
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    /// When it was seen.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
}

/// Metrics of one source.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeMetrics {
    /// The source.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Its metrics.
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
}

/// The name of a source.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// The service that sends.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Its attributes.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// A request to a collector: `ExportTraceServiceRequest`, or that of metrics or logs, which have the same form. The
/// content of the scope is encoded already.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    /// `resource_spans` or `resource_metrics`.
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<EncodedResource>,
}

/// `ResourceSpans` or `ResourceMetrics`.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedResource {
    /// The service.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// A [`ScopeSpans`] or [`ScopeMetrics`], encoded.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub scopes: Vec<Vec<u8>>,
}

/// The answer of a collector: `ExportTraceServiceResponse` or `ExportMetricsServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// The part that it did not take.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// The part that a collector did not take.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// The number of spans or data points.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// The reason.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub value: Option<Value>,
}

/// The value of an attribute, by type.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// True or false.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// An integer.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
}

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// The id of the trace: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its own id: 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// The id of the parent: 8 bytes, or none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// The name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// The side of the exchange.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Its begin, in nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Its end.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Its attributes.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// The events during it.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
    /// Whether it has failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// Flags: those of W3C, whether the parent is known to be in another process, and whether it is.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// An event during a span.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// When it was, in nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its attributes.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// Whether a span has failed.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// The reason.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Whether it has failed.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// The side of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Unknown.
    Unspecified = 0,
    /// Inside of the service.
    Internal = 1,
    /// It answers.
    Server = 2,
    /// It asks.
    Client = 3,
}

/// Whether a span has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not known.
    Unset = 0,
    /// It has succeeded.
    Ok = 1,
    /// It has failed.
    Error = 2,
}

/// A metric.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The meaning.
    #[prost(string, tag = "2")]
    pub description: String,
    /// The unit.
    #[prost(string, tag = "3")]
    pub unit: String,
    /// The points.
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    pub data: Option<Data>,
}

/// The points of a metric, by kind.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    /// It goes up and down.
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    /// It only grows.
    #[prost(message, tag = "7")]
    Sum(Sum),
    /// Times, by bucket.
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

/// A gauge.
#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    /// One for each combination of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
}

/// A counter.
#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    /// One for each combination of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberDataPoint>,
    /// Since when it counts.
    #[prost(enumeration = "Temporality", tag = "2")]
    pub aggregation_temporality: i32,
    /// It only grows.
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// A histogram.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    /// One for each combination of labels.
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramDataPoint>,
    /// Since when it counts.
    #[prost(enumeration = "Temporality", tag = "2")]
    pub aggregation_temporality: i32,
}

/// Since when a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Temporality {
    /// Unknown.
    Unspecified = 0,
    /// Since the last report.
    Delta = 1,
    /// Since the start.
    Cumulative = 2,
}

/// A number.
#[derive(Clone, PartialEq, Message)]
pub struct NumberDataPoint {
    /// Its labels.
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    /// Since when it counts, in nanoseconds since 1970.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was read.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// The number.
    #[prost(oneof = "Number", tags = "4, 6")]
    pub value: Option<Number>,
}

/// A number, by type.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum Number {
    /// With a fraction.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Whole.
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

/// Times, by bucket.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramDataPoint {
    /// Its labels.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Since when it counts, in nanoseconds since 1970.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was read.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// How many there are.
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    /// Their sum.
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    /// How many are in each bucket, which is one more than there are bounds.
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    /// The upper bounds.
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
}

// === impl KeyValue ===

impl KeyValue {
    /// An attribute with a text.
    pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
        KeyValue::of(key, Value::Text(value.into()))
    }

    /// An attribute with an integer.
    pub fn int(key: &str, value: i64) -> KeyValue {
        KeyValue::of(key, Value::Int(value))
    }

    /// An attribute that is true or false.
    pub fn bool(key: &str, value: bool) -> KeyValue {
        KeyValue::of(key, Value::Bool(value))
    }

    /// An attribute with a number.
    pub fn double(key: &str, value: f64) -> KeyValue {
        KeyValue::of(key, Value::Double(value))
    }

    fn of(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}
