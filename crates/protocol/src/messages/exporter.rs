//! The messages between the supervisor and the process of the metrics listener, which also exports to OpenTelemetry.

use crate::child::identity::Identity;
use serde::{Deserialize, Serialize};

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToExporter {
    /// Become a user, answer clients and export spans. The first message. Descriptors: the listening socket, if there is one;
    /// the end of the pipe where spans are read, with `telemetry`.
    Boot(ExporterBoot),
    /// The text for a request. Descriptors: the text.
    Text {
        /// The number of the request.
        id: u64,
    },
    /// There is no text now.
    NoText {
        /// The number of the request.
        id: u64,
    },
    /// Send the spans that are there, then exit.
    Finish,
}

/// The boot message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExporterBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// A configuration that has only `settings/metrics` and `settings/telemetry`.
    pub configuration: String,
    /// Whether there is a listening socket.
    pub has_listener: bool,
    /// The secrets and files of `settings/telemetry`, if the configuration has that.
    pub telemetry: Option<TelemetryBoot>,
}

/// Files and secrets for an exporter of spans, besides its settings.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TelemetryBoot {
    /// The marker of the pipe.
    pub marker: u64,
    /// The id of this instance of howdah.
    pub instance: String,
    /// Names and values of headers for the collector.
    pub headers: Vec<(String, String)>,
    /// The certificates of authorities as PEM; `None`: those of the system.
    pub authorities: Option<String>,
}

// === impl TelemetryBoot ===

impl std::fmt::Debug for TelemetryBoot {
    /// Without the headers, which are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetryBoot").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// To the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromExporter {
    /// A client asks for the numbers.
    Scrape {
        /// The number of the request.
        id: u64,
        /// The format that it asks for.
        format: Format,
    },
    /// The outcome of spans and of log records since the last report.
    Exported {
        /// Spans.
        spans: Outcome,
        /// Lines of logs.
        logs: Outcome,
    },
}

/// The format of an exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// Prometheus' text, 0.0.4.
    Prometheus,
    /// OpenMetrics, 1.0.
    OpenMetrics,
    /// Prometheus' protocol buffers: messages `MetricFamily`, each with its length before it.
    Protobuf,
}

/// The outcome of spans, or of log records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The collector has taken these.
    pub sent: u64,
    /// These were dropped: the queue was full, or the collector has refused them.
    pub dropped: u64,
}

// === impl Outcome ===

impl Outcome {
    /// Adds another outcome.
    pub fn add(&mut self, other: Outcome) {
        self.sent = self.sent.saturating_add(other.sent);
        self.dropped = self.dropped.saturating_add(other.dropped);
    }
}
