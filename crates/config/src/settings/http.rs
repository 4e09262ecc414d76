//! `settings/http`: limits, timeouts and other settings of HTTP.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::read::duration;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::read::size;
use crate::settings::compression::Compression;
use crate::settings::error_pages::ErrorPages;
use crate::settings::mime_types::MimeTypes;
use crate::settings::request_id::RequestIdSettings;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "header_read_timeout",
        "body_read_timeout",
        "send_timeout",
        "idle_timeout",
        "max_body_size",
        "body_buffer_size",
        "body_temp_path",
        "discard_unsafe_fields",
        "log_route",
        "server_version",
        "chunked_transform",
        "static",
        "compression",
        "error_pages",
        "http2",
        "request_id",
    ],
    unsupported: &[
        ("header_buffer_size", HEAD_ADVICE),
        ("large_header_buffer_size", HEAD_ADVICE),
        ("large_header_buffers", HEAD_ADVICE),
        ("websocket", "\"proxy\" passes WebSockets through unchanged; remove it"),
    ],
};

const HEAD_ADVICE: &str = "the head of a request may always have 64 KiB; remove it";

pub(crate) const STATIC_OPTIONS: Options = Options { known: &["mime_types"], unsupported: &[] };

pub(crate) const HTTP2_OPTIONS: Options = Options { known: &["max_concurrent_streams"], unsupported: &[] };

const MAX_SECONDS: u64 = i32::MAX as u64 / 1000;
const MAX_BODY_BYTES: u64 = 1 << 40;
const MAX_BUFFER_BYTES: u64 = 1 << 30;
const MAX_STREAMS: u32 = 10_000;

/// Limits and timeouts of HTTP. Timeouts are 1 to 2,147,483 seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// The time that a client has to send the head of a request. Default: 30 s.
    pub header_read_timeout: Duration,
    /// The time without any data while a body is read. Default: 30 s.
    pub body_read_timeout: Duration,
    /// The time in which a client reads nothing of a response. Default: 30 s.
    pub send_timeout: Duration,
    /// The time that a connection stays open between requests. Default: 180 s.
    pub idle_timeout: Duration,
    /// The largest body of a request, in bytes, from 1 to 1 TiB. Default: 8 MiB.
    pub max_body_size: u64,
    /// The part of a body that is kept in memory before a file is used, in bytes, up to 1 GiB. Default: 16 KiB.
    pub body_buffer_size: u64,
    /// The folder of these files, an absolute path; `None`: the system's folder for temporary files.
    pub body_temp_path: Option<PathBuf>,
    /// Whether headers are dropped if their names have characters other than letters, digits and hyphens. Default:
    /// true.
    pub discard_unsafe_fields: bool,
    /// Whether the steps that each request takes are logged. Default: false.
    pub log_route: bool,
    /// Whether the `Server` header has the version. Default: true.
    pub server_version: bool,
    /// Whether request bodies in chunks are accepted. Default: false.
    pub chunked_transform: bool,
    /// `static/mime_types`: types of files, which override the built-in ones.
    pub mime_types: MimeTypes,
    /// Which responses are compressed, and how. Default: no compression.
    pub compression: Compression,
    /// Pages for errors of howdah itself.
    pub error_pages: ErrorPages,
    /// Limits of HTTP/2.
    pub http2: Http2,
    /// The id of each request; `None`: only `$request_id` makes one.
    pub request_id: Option<RequestIdSettings>,
}

/// Limits of HTTP/2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// The most requests of a connection that may be answered at the same time, from 1 to 10,000. Default: 128.
    pub max_concurrent_streams: u32,
}

// === impl Http ===

impl Default for Http {
    fn default() -> Self {
        Self {
            header_read_timeout: Duration::from_secs(30),
            body_read_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(180),
            max_body_size: 8 << 20,
            body_buffer_size: 16 << 10,
            body_temp_path: None,
            discard_unsafe_fields: true,
            log_route: false,
            server_version: true,
            chunked_transform: false,
            mime_types: MimeTypes::default(),
            compression: Compression::default(),
            error_pages: ErrorPages::default(),
            http2: Http2::default(),
            request_id: None,
        }
    }
}

impl Http {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let default = Self::default();
        let seconds = |node: &Node<'_>| duration::whole_seconds(node, 1..=MAX_SECONDS);
        let timeout = |key, default| Ok(object.read(key, seconds)?.unwrap_or(default));
        let bytes = |key, range, default| Ok(object.read(key, |node| size::in_range(node, range))?.unwrap_or(default));
        let flag = |key, default| Ok(object.read(key, Node::boolean)?.unwrap_or(default));
        Ok(Self {
            header_read_timeout: timeout("header_read_timeout", default.header_read_timeout)?,
            body_read_timeout: timeout("body_read_timeout", default.body_read_timeout)?,
            send_timeout: timeout("send_timeout", default.send_timeout)?,
            idle_timeout: timeout("idle_timeout", default.idle_timeout)?,
            max_body_size: bytes("max_body_size", 1..=MAX_BODY_BYTES, default.max_body_size)?,
            body_buffer_size: bytes("body_buffer_size", 0..=MAX_BUFFER_BYTES, default.body_buffer_size)?,
            body_temp_path: object.read("body_temp_path", Node::absolute_path)?,
            discard_unsafe_fields: flag("discard_unsafe_fields", default.discard_unsafe_fields)?,
            log_route: flag("log_route", default.log_route)?,
            server_version: flag("server_version", default.server_version)?,
            chunked_transform: flag("chunked_transform", default.chunked_transform)?,
            mime_types: object.read("static", read_static)?.unwrap_or_default(),
            compression: object.read("compression", |node| Compression::read(node, scope))?.unwrap_or_default(),
            error_pages: object.read("error_pages", ErrorPages::read)?.unwrap_or_default(),
            http2: object.read("http2", Http2::read)?.unwrap_or_default(),
            request_id: object.read("request_id", RequestIdSettings::read)?,
        })
    }
}

// === impl Http2 ===

impl Default for Http2 {
    fn default() -> Self {
        Self { max_concurrent_streams: 128 }
    }
}

impl Http2 {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let streams = |node: &Node<'_>| node.integer(1..=MAX_STREAMS, "requests at the same time");
        let max_concurrent_streams = node.object(&HTTP2_OPTIONS)?.read("max_concurrent_streams", streams)?;
        Ok(max_concurrent_streams.map_or_else(Self::default, |max_concurrent_streams| Self { max_concurrent_streams }))
    }
}

fn read_static(node: &Node<'_>) -> Result<MimeTypes, Error> {
    Ok(node.object(&STATIC_OPTIONS)?.read("mime_types", MimeTypes::read)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::settings::compression::{Compressor, Encoding};

    fn read(json: &str) -> Result<Http, String> {
        let value = json::parse(json).expect("JSON");
        Http::read(&Node::root(&value), &Scope::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_setting_has_its_default() {
        assert_eq!(read("{}"), Ok(Http::default()));
        assert_eq!(read(r#"{"static": {}, "compression": {}}"#), Ok(Http::default()));
    }

    #[test]
    fn every_setting_is_read() {
        let json = r#"{
            "header_read_timeout": 1, "body_read_timeout": 2, "send_timeout": 3, "idle_timeout": 4,
            "max_body_size": 5, "body_buffer_size": 0, "body_temp_path": "/tmp/", "server_version": false,
            "discard_unsafe_fields": false, "log_route": true, "chunked_transform": true,
            "http2": {"max_concurrent_streams": 7},
            "static": {"mime_types": {"a/b": ".c"}}, "compression": {"compressors": {"encoding": "br", "level": 5}}}"#;
        let expected = Http {
            header_read_timeout: Duration::from_secs(1),
            body_read_timeout: Duration::from_secs(2),
            send_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(4),
            max_body_size: 5,
            body_buffer_size: 0,
            body_temp_path: Some("/tmp".into()),
            discard_unsafe_fields: false,
            log_route: true,
            server_version: false,
            chunked_transform: true,
            mime_types: MimeTypes { extensions: [("c".into(), "a/b".into())].into(), ..MimeTypes::default() },
            compression: Compression {
                types: None,
                compressors: vec![Compressor { encoding: Encoding::Brotli(5), min_length: 0 }],
            },
            error_pages: ErrorPages::default(),
            http2: Http2 { max_concurrent_streams: 7 },
            request_id: None,
        };
        assert_eq!(read(json), Ok(expected));
    }

    #[test]
    fn an_error_names_the_setting_and_its_range() {
        let seconds = "write 1 to 2147483 seconds";
        let head = "howdah does not have this option of NGINX Unit; \
                    the head of a request may always have 64 KiB; remove it";
        let cases = [
            (
                r#"{"header_read_timeout": "30"}"#,
                format!("header_read_timeout: \"30\" is not a time; {seconds}, as a number or with a unit: \"30s\""),
            ),
            (r#"{"body_read_timeout": -1}"#, format!("body_read_timeout: -1 is out of range; {seconds}")),
            (r#"{"idle_timeout": 0}"#, format!("idle_timeout: 0 is out of range; {seconds}")),
            (r#"{"send_timeout": 1.5}"#, format!("send_timeout: 1.5 is not a whole number; {seconds}")),
            (r#"{"max_body_size": 0}"#, "max_body_size: 0 is out of range; write 1 to 1099511627776 bytes".into()),
            (r#"{"body_buffer_size": -1}"#, "body_buffer_size: -1 is out of range; write 0 to 1073741824 bytes".into()),
            (r#"{"body_temp_path": "t"}"#, "body_temp_path: \"t\" is not an absolute path; begin it with \"/\"".into()),
            (r#"{"server_version": 1}"#, "server_version: expected true or false, found the number 1".into()),
            (
                r#"{"discard_unsafe_fields": 1}"#,
                "discard_unsafe_fields: expected true or false, found the number 1".into(),
            ),
            (r#"{"log_route": "x"}"#, "log_route: expected true or false, found the string \"x\"".into()),
            (r#"{"chunked_transform": []}"#, "chunked_transform: expected true or false, found an array".into()),
            (r#"{"static": {"mime": {}}}"#, "static/mime: there is no such option; remove it".into()),
            (r#"{"static": {"mime_types": []}}"#, "static/mime_types: expected an object, found an array".into()),
            (
                r#"{"compression": true}"#,
                "compression: expected an object, found true; its options are \"types\", \"compressors\"".into(),
            ),
            (
                r#"{"http2": {"max_concurrent_streams": 0}}"#,
                "http2/max_concurrent_streams: 0 is out of range; write 1 to 10000 requests at the same time".into(),
            ),
            (r#"{"large_header_buffers": 8}"#, format!("large_header_buffers: {head}")),
            (r#"{"large_header_buffer_size": 8}"#, format!("large_header_buffer_size: {head}")),
            (
                r#"{"websocket": {}}"#,
                "websocket: howdah does not have this option of NGINX Unit; \
                 \"proxy\" passes WebSockets through unchanged; remove it"
                    .into(),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected), "{json}");
        }
    }
}
