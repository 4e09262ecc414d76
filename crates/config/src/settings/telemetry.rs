//! `telemetry`: where traces of requests are sent. It is checked, but has no effect yet; a warning reports that.

use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options =
    Options { known: &["endpoint", "protocol", "batch_size", "sampling_ratio"], unsupported: &[] };

const MAX_BATCH: u32 = 65_536;
const DEFAULT_BATCH: u32 = 128;

/// Where traces are sent, in OpenTelemetry's protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// The URL of the collector.
    pub endpoint: String,
    /// The protocol of the collector.
    pub protocol: TelemetryProtocol,
    /// The number of spans that are sent together, 1 to 65536. Default: 128.
    pub batch_size: u32,
    /// The fraction of the requests that are traced, 0 to 1. Default: 1.
    pub sampling_ratio: f64,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelemetryProtocol {
    /// HTTP.
    Http,
    /// gRPC.
    Grpc,
}

// === impl Telemetry ===

impl Telemetry {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let endpoint =
            object.require("endpoint", "the URL of a collector, as in \"http://127.0.0.1:4318/v1/traces\"")?;
        let protocol = object.require("protocol", "\"protocol\": \"http\" or \"grpc\"")?;
        let telemetry = Self {
            endpoint: read_endpoint(&endpoint)?,
            protocol: TelemetryProtocol::read(&protocol)?,
            batch_size: object
                .read("batch_size", |node| node.integer(1..=MAX_BATCH, "spans"))?
                .unwrap_or(DEFAULT_BATCH),
            sampling_ratio: object.read("sampling_ratio", |node| node.number(0.0..=1.0, ""))?.unwrap_or(1.0),
        };
        scope.warn(node, "howdah does not send traces yet; a later version will, with these settings");
        Ok(telemetry)
    }
}

fn read_endpoint(node: &Node<'_>) -> Result<String, Error> {
    let text = node.string()?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
    if rest.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let advice = "write one such as \"http://127.0.0.1:4318/v1/traces\"";
        return Err(node.error(format_args!("{} is not the URL of a collector; {advice}", quoted(&text))));
    }
    Ok(text)
}

// === impl TelemetryProtocol ===

impl TelemetryProtocol {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        match text.to_ascii_lowercase().as_str() {
            "http" => Ok(Self::Http),
            "grpc" => Ok(Self::Grpc),
            _ => Err(node.error(format_args!("{} is not a protocol; write \"http\" or \"grpc\"", quoted(&text)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(telemetry: &str) -> Result<(Option<Telemetry>, Vec<String>), String> {
        let parsed = Configuration::parse(&format!(r#"{{"settings": {{"telemetry": {telemetry}}}}}"#));
        parsed
            .map(|configuration| (configuration.settings.telemetry, configuration.warnings))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn telemetry_is_read_with_a_warning() {
        let (telemetry, warnings) = parse(
            r#"{"endpoint": "https://x/v1/traces", "protocol": "GRPC", "batch_size": 20, "sampling_ratio": 0.5}"#,
        )
        .expect("telemetry");
        let expected = Telemetry {
            endpoint: "https://x/v1/traces".into(),
            protocol: TelemetryProtocol::Grpc,
            batch_size: 20,
            sampling_ratio: 0.5,
        };
        assert_eq!(telemetry, Some(expected));
        let warning = "settings/telemetry: howdah does not send traces yet; a later version will, with these settings";
        assert_eq!(warnings, [warning]);
        let (defaults, _) = parse(r#"{"endpoint": "http://x", "protocol": "http"}"#).expect("telemetry");
        let defaults = defaults.expect("telemetry");
        assert_eq!((defaults.batch_size, defaults.sampling_ratio), (128, 1.0));
    }

    #[test]
    fn an_error_names_the_option() {
        let with = |option: &str| format!(r#"{{"endpoint": "http://x", "protocol": "http", {option}}}"#);
        let cases = [
            (
                r#"{"protocol": "http"}"#.to_owned(),
                ": \"endpoint\" is missing; add the URL of a collector, as in \"http://127.0.0.1:4318/v1/traces\"",
            ),
            (
                r#"{"endpoint": "http://x"}"#.to_owned(),
                ": \"protocol\" is missing; add \"protocol\": \"http\" or \"grpc\"",
            ),
            (
                r#"{"endpoint": "x:4317", "protocol": "grpc"}"#.to_owned(),
                "/endpoint: \"x:4317\" is not the URL of a collector; \
                 write one such as \"http://127.0.0.1:4318/v1/traces\"",
            ),
            (
                r#"{"endpoint": "http://x", "protocol": "udp"}"#.to_owned(),
                "/protocol: \"udp\" is not a protocol; write \"http\" or \"grpc\"",
            ),
            (with(r#""batch_size": 0"#), "/batch_size: 0 is out of range; write 1 to 65536 spans"),
            (with(r#""sampling_ratio": 1.1"#), "/sampling_ratio: 1.1 is out of range; write 0 to 1"),
            (with(r#""ratio": 1"#), "/ratio: there is no such option; remove it"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(&json), Err(format!("settings/telemetry{expected}")), "{json}");
        }
    }
}
