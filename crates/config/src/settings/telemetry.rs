//! `telemetry`: where the traces of requests and the numbers of howdah are sent, in OpenTelemetry's protocol (OTLP).

use crate::error::{Error, quoted};
use crate::read::node::{Node, Options};
use std::path::PathBuf;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "endpoint",
        "protocol",
        "batch_size",
        "sampling_ratio",
        "parent_based",
        "service_name",
        "metrics_interval",
        "logs",
        "headers_file",
        "ca_file",
    ],
    unsupported: &[],
};

const MAX_BATCH: u32 = 65_536;
const DEFAULT_BATCH: u32 = 128;
const DEFAULT_SERVICE: &str = "howdah";
const MAX_SERVICE_BYTES: usize = 255;
const MAX_INTERVAL: u32 = 86_400;

/// Where traces are sent, in OpenTelemetry's protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// The URL of the collector.
    pub endpoint: CollectorUrl,
    /// The protocol of the collector.
    pub protocol: TelemetryProtocol,
    /// The number of spans that are sent together, 1 to 65536. Default: 128.
    pub batch_size: u32,
    /// The fraction of the requests that are traced, 0 to 1. Default: 1.
    pub sampling_ratio: f64,
    /// Whether the decision of a client that sends a trace context counts. Default: true.
    pub parent_based: bool,
    /// The name of the service in the collector. Default: howdah.
    pub service_name: String,
    /// The seconds between two reports of howdah's numbers; `None`: they are not sent.
    pub metrics_interval: Option<u32>,
    /// Whether the lines of the access log and of howdah's own log are sent, too. Default: false.
    pub logs: bool,
    /// A file with headers of each request to the collector.
    pub headers_file: Option<PathBuf>,
    /// A file with the certificates of the authorities of the collector; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelemetryProtocol {
    /// HTTP.
    Http,
    /// gRPC.
    Grpc,
}

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    /// Whether it begins with `https`.
    pub is_https: bool,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path with its slash; empty for a URL without one.
    pub path: String,
}

/// The path of traces over HTTP.
const TRACES_PATH: &str = "/v1/traces";

// === impl Telemetry ===

impl Telemetry {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let endpoint =
            object.require("endpoint", "the URL of a collector, as in \"http://127.0.0.1:4318/v1/traces\"")?;
        let protocol = object.require("protocol", "\"protocol\": \"http\" or \"grpc\"")?;
        let telemetry = Self {
            endpoint: CollectorUrl::read(&endpoint)?,
            protocol: TelemetryProtocol::read(&protocol)?,
            batch_size: object
                .read("batch_size", |node| node.integer(1..=MAX_BATCH, "spans"))?
                .unwrap_or(DEFAULT_BATCH),
            sampling_ratio: object.read("sampling_ratio", |node| node.number(0.0..=1.0, ""))?.unwrap_or(1.0),
            parent_based: object.read("parent_based", Node::boolean)?.unwrap_or(true),
            service_name: object.read("service_name", read_service_name)?.unwrap_or_else(|| DEFAULT_SERVICE.to_owned()),
            metrics_interval: object.read("metrics_interval", |node| node.integer(1..=MAX_INTERVAL, "seconds"))?,
            logs: object.read("logs", Node::boolean)?.unwrap_or(false),
            headers_file: object.read("headers_file", Node::absolute_path)?,
            ca_file: object.read("ca_file", Node::absolute_path)?,
        };
        let (url, protocol) = (&telemetry.endpoint, telemetry.protocol);
        match protocol {
            TelemetryProtocol::Grpc if !url.path.is_empty() && url.path != "/" => {
                let advice = "gRPC has paths of its own; write the URL without a path, as in \"http://127.0.0.1:4317\"";
                Err(endpoint.error(format_args!("{advice}")))
            }
            TelemetryProtocol::Http if telemetry.metrics_interval.is_some() && url.metrics_path().is_none() => {
                let advice = "with \"metrics_interval\", end it with /v1/traces: the metrics are sent to /v1/metrics";
                Err(endpoint.error(format_args!("{advice}")))
            }
            TelemetryProtocol::Http if telemetry.logs && url.logs_path().is_none() => {
                let advice = "with \"logs\", end it with /v1/traces: the lines are sent to /v1/logs";
                Err(endpoint.error(format_args!("{advice}")))
            }
            _ => Ok(telemetry),
        }
    }
}

fn read_service_name(node: &Node<'_>) -> Result<String, Error> {
    let name = node.nonempty_string()?;
    if name.len() > MAX_SERVICE_BYTES || name.chars().any(char::is_control) {
        return Err(node.error(format_args!("write at most {MAX_SERVICE_BYTES} bytes without control characters")));
    }
    Ok(name)
}

// === impl CollectorUrl ===

impl CollectorUrl {
    /// The host and port, as in the header `Host`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The path of traces over HTTP.
    pub fn traces_path(&self) -> String {
        match self.path.as_str() {
            "" | "/" => TRACES_PATH.to_owned(),
            path => path.to_owned(),
        }
    }

    /// The path of metrics over HTTP, beside that of traces; `None` if that has another name than usual.
    pub fn metrics_path(&self) -> Option<String> {
        self.path_beside_traces("/v1/metrics")
    }

    /// The path of log records over HTTP, likewise.
    pub fn logs_path(&self) -> Option<String> {
        self.path_beside_traces("/v1/logs")
    }

    fn path_beside_traces(&self, path: &str) -> Option<String> {
        let traces = self.traces_path();
        traces.strip_suffix(TRACES_PATH).map(|before| format!("{before}{path}"))
    }

    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        Self::parse(&text).ok_or_else(|| {
            let advice = "write one such as \"http://127.0.0.1:4318/v1/traces\"";
            node.error(format_args!("{} is not the URL of a collector; {advice}", quoted(&text)))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let is_https = text.starts_with("https://");
        let rest = text.strip_prefix(if is_https { "https://" } else { "http://" })?;
        if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"@#?\"<>\\^`{|}".contains(&byte)) {
            return None;
        }
        let path_at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, port)
            }
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                port.parse().ok().filter(|port| *port > 0)?
            }
            Some(_) => return None,
            None if port.is_empty() => {
                if is_https {
                    443
                } else {
                    80
                }
            }
            None => return None,
        };
        let is_named = !host.is_empty() && !host.contains(['[', ']']);
        is_named.then(|| Self { is_https, host: host.to_owned(), port, path: path.to_owned() })
    }
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
    fn telemetry_is_read() {
        let (telemetry, warnings) = parse(
            r#"{"endpoint": "https://x:4317", "protocol": "GRPC", "batch_size": 20, "sampling_ratio": 0.5,
                "parent_based": false, "service_name": "shop", "metrics_interval": 30, "logs": true,
                "headers_file": "/etc/howdah/otlp", "ca_file": "/etc/howdah/ca.pem"}"#,
        )
        .expect("telemetry");
        let expected = Telemetry {
            endpoint: CollectorUrl { is_https: true, host: "x".into(), port: 4317, path: String::new() },
            protocol: TelemetryProtocol::Grpc,
            batch_size: 20,
            sampling_ratio: 0.5,
            parent_based: false,
            service_name: "shop".into(),
            metrics_interval: Some(30),
            logs: true,
            headers_file: Some("/etc/howdah/otlp".into()),
            ca_file: Some("/etc/howdah/ca.pem".into()),
        };
        assert_eq!((telemetry, warnings.len()), (Some(expected), 0));
        let (defaults, _) = parse(r#"{"endpoint": "http://x", "protocol": "http"}"#).expect("telemetry");
        let defaults = defaults.expect("telemetry");
        assert_eq!((defaults.batch_size, defaults.sampling_ratio, defaults.parent_based), (128, 1.0, true));
        assert_eq!((defaults.service_name.as_str(), defaults.metrics_interval), ("howdah", None));
    }

    #[test]
    fn a_url_has_a_host_a_port_and_paths() {
        let table = [
            ("http://x", Some(("x:80", "/v1/traces", Some("/v1/metrics")))),
            ("https://x/", Some(("x:443", "/v1/traces", Some("/v1/metrics")))),
            ("http://127.0.0.1:4318/v1/traces", Some(("127.0.0.1:4318", "/v1/traces", Some("/v1/metrics")))),
            ("https://[::1]:4318/a/v1/traces", Some(("[::1]:4318", "/a/v1/traces", Some("/a/v1/metrics")))),
            ("http://x/otlp", Some(("x:80", "/otlp", None))),
            ("http://", None),
            ("http:///v1", None),
            ("http://:4318", None),
            ("http://x:", None),
            ("http://x:0", None),
            ("http://x:+1", None),
            ("http://x:65536", None),
            ("http://user:password@x", None),
            ("http://x/a?b", None),
            ("http://x/a\r\nb: c", None),
            ("http://[x]", None),
            ("http://[::1", None),
            ("http://::1", None),
            ("ftp://x", None),
        ];
        for (text, expected) in table {
            let url = CollectorUrl::parse(text);
            let found = url.map(|url| (url.authority(), url.traces_path(), url.metrics_path()));
            let expected = expected.map(|(authority, traces, metrics)| {
                (authority.to_owned(), traces.to_owned(), metrics.map(str::to_owned))
            });
            assert_eq!(found, expected, "{text}");
        }
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
            (
                r#"{"endpoint": "http://x/v1/traces", "protocol": "grpc"}"#.to_owned(),
                "/endpoint: gRPC has paths of its own; write the URL without a path, as in \"http://127.0.0.1:4317\"",
            ),
            (
                r#"{"endpoint": "http://x/otlp", "protocol": "http", "metrics_interval": 60}"#.to_owned(),
                "/endpoint: with \"metrics_interval\", end it with /v1/traces: the metrics are sent to /v1/metrics",
            ),
            (with(r#""metrics_interval": 0"#), "/metrics_interval: 0 is out of range; write 1 to 86400 seconds"),
            (with(r#""headers_file": "x""#), "/headers_file: \"x\" is not an absolute path; begin it with \"/\""),
            (with(r#""batch_size": 0"#), "/batch_size: 0 is out of range; write 1 to 65536 spans"),
            (with(r#""sampling_ratio": 1.1"#), "/sampling_ratio: 1.1 is out of range; write 0 to 1"),
            (with(r#""ratio": 1"#), "/ratio: there is no such option; remove it"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(&json), Err(format!("settings/telemetry{expected}")), "{json}");
        }
    }
}
