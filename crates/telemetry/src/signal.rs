//! The kinds of what is sent to a collector.

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Numbers.
    Metrics,
    /// Lines of logs.
    Logs,
}

// === impl Signal ===

impl Signal {
    /// The path of its gRPC method.
    pub fn method(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// The things that a collector takes, in messages for people.
    pub fn content(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Metrics => "metrics",
            Signal::Logs => "log records",
        }
    }
}
