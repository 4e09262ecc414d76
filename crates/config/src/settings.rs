//! `settings`: what holds for every listener.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, quoted};
use crate::node::{Node, Options};

const OPTIONS: Options = Options { known: &["listen_threads", "http"], not_yet: &["js_module", "telemetry"] };

const HTTP_OPTIONS: Options = Options {
    known: &[
        "header_read_timeout",
        "body_read_timeout",
        "send_timeout",
        "idle_timeout",
        "max_body_size",
        "body_buffer_size",
        "body_temp_path",
        "server_version",
        "static",
    ],
    not_yet: &[
        "chunked_transform",
        "compression",
        "discard_unsafe_fields",
        "header_buffer_size",
        "large_header_buffer_size",
        "large_header_buffers",
        "log_route",
        "websocket",
    ],
};

const STATIC_OPTIONS: Options = Options { known: &["mime_types"], not_yet: &[] };

const MAX_THREADS: u64 = 1024;
const DAY_SECONDS: u64 = 24 * 60 * 60;
const MAX_BODY_BYTES: u64 = 1 << 40;
const MAX_BUFFER_BYTES: u64 = 1 << 30;

/// What holds for every listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How many threads the router has, from 1 to 1024; `None` is one for each core.
    pub listen_threads: Option<u32>,
    /// Limits and time-outs of HTTP.
    pub http: Http,
}

/// Limits and time-outs of HTTP. The time-outs are 1 to 86400 seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// How long a client may take for the header of a request: 30 s.
    pub header_read_timeout: Duration,
    /// How long a client may send nothing while its body is read: 30 s.
    pub body_read_timeout: Duration,
    /// How long a client may take nothing of the response: 30 s.
    pub send_timeout: Duration,
    /// How long a connection may stay open between requests: 180 s.
    pub idle_timeout: Duration,
    /// The longest body of a request, in bytes, from 1 to 1 TiB: 8 MiB.
    pub max_body_size: u64,
    /// How much of a body is kept in memory before it goes to a file, in bytes, up to 1 GiB: 16 KiB.
    pub body_buffer_size: u64,
    /// The folder of these files, an absolute path; `None` is the system's folder for temporary files.
    pub body_temp_path: Option<PathBuf>,
    /// Whether the `Server` header has the version: true.
    pub server_version: bool,
    /// `static/mime_types`: the types of files, by extension, without the dot and in lower case. They come before
    /// the built-in ones. A type is visible ASCII.
    pub mime_types: BTreeMap<String, String>,
}

// === impl Settings ===

impl Settings {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        Ok(Self {
            listen_threads: object.read("listen_threads", |node| node.integer(1..=MAX_THREADS, "threads"))?,
            http: object.read("http", Http::read)?.unwrap_or_default(),
        })
    }
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
            server_version: true,
            mime_types: BTreeMap::new(),
        }
    }
}

impl Http {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&HTTP_OPTIONS)?;
        let default = Self::default();
        let timeout = |key, default| Ok(object.read(key, read_seconds)?.unwrap_or(default));
        let bytes = |key, range, default| Ok(object.read(key, |node| node.integer(range, "bytes"))?.unwrap_or(default));
        Ok(Self {
            header_read_timeout: timeout("header_read_timeout", default.header_read_timeout)?,
            body_read_timeout: timeout("body_read_timeout", default.body_read_timeout)?,
            send_timeout: timeout("send_timeout", default.send_timeout)?,
            idle_timeout: timeout("idle_timeout", default.idle_timeout)?,
            max_body_size: bytes("max_body_size", 1..=MAX_BODY_BYTES, default.max_body_size)?,
            body_buffer_size: bytes("body_buffer_size", 0..=MAX_BUFFER_BYTES, default.body_buffer_size)?,
            body_temp_path: object.read("body_temp_path", Node::absolute_path)?,
            server_version: object.read("server_version", Node::boolean)?.unwrap_or(default.server_version),
            mime_types: object.read("static", read_static)?.unwrap_or_default(),
        })
    }
}

fn read_seconds(node: &Node<'_>) -> Result<Duration, Error> {
    node.integer(1..=DAY_SECONDS, "seconds").map(Duration::from_secs)
}

fn read_static(node: &Node<'_>) -> Result<BTreeMap<String, String>, Error> {
    let object = node.object(&STATIC_OPTIONS)?;
    Ok(object.read("mime_types", |node| read_mime_types(node))?.unwrap_or_default())
}

/// From types with their extensions to extensions with their type.
fn read_mime_types(node: &Node<'_>) -> Result<BTreeMap<String, String>, Error> {
    let mut types = BTreeMap::new();
    for (name, node) in node.named()? {
        if !is_mime_type(name) {
            return Err(node.error("this is not a MIME type; write one such as \"text/plain\""));
        }
        for extension in node.one_or_many(read_extension)? {
            if let Some(other) = types.insert(extension.clone(), name.to_owned()) {
                let problem =
                    format!("{:?} has the type {} already; remove one", format!(".{extension}"), quoted(&other));
                return Err(node.error(problem));
            }
        }
    }
    Ok(types)
}

/// Two names with a slash between them, and perhaps parameters. Visible ASCII, as it becomes a header's value.
fn is_mime_type(name: &str) -> bool {
    let essence = name.split(';').next().unwrap_or_default().trim_end();
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

fn read_extension(node: &Node<'_>) -> Result<String, Error> {
    let text = node.nonempty_string()?;
    let Some(extension) = text.strip_prefix('.') else {
        let advice = "howdah does not support names of files here yet; write an extension, such as \".thing\"";
        return Err(node.error(format_args!("{} has no dot at its beginning; {advice}", quoted(&text))));
    };
    if extension.is_empty() || extension.contains(['.', '/']) {
        let advice = "write what comes after a file's last dot, such as \".gz\"";
        return Err(node.error(format_args!("{} is not an extension; {advice}", quoted(&text))));
    }
    Ok(extension.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;

    fn parse(settings: &str) -> Result<Settings, String> {
        let parsed = Configuration::parse(&format!(r#"{{"settings": {settings}}}"#));
        parsed.map(|configuration| configuration.settings).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        assert_eq!(parse("{}"), Ok(Settings::default()));
        assert_eq!(parse(r#"{"http": {"static": {}}}"#), Ok(Settings::default()));
    }

    #[test]
    fn every_setting_is_read() {
        let json = r#"{"listen_threads": 2, "http": {
            "header_read_timeout": 1, "body_read_timeout": 2, "send_timeout": 3, "idle_timeout": 4,
            "max_body_size": 5, "body_buffer_size": 0, "body_temp_path": "/tmp/", "server_version": false,
            "static": {"mime_types": {"text/x-thing; charset=utf-8": [".thing", ".THANG"], "a/b": ".c"}}}}"#;
        let types = [("c", "a/b"), ("thang", "text/x-thing; charset=utf-8"), ("thing", "text/x-thing; charset=utf-8")];
        let expected = Settings {
            listen_threads: Some(2),
            http: Http {
                header_read_timeout: Duration::from_secs(1),
                body_read_timeout: Duration::from_secs(2),
                send_timeout: Duration::from_secs(3),
                idle_timeout: Duration::from_secs(4),
                max_body_size: 5,
                body_buffer_size: 0,
                body_temp_path: Some("/tmp".into()),
                server_version: false,
                mime_types: types.map(|(extension, name)| (extension.to_owned(), name.to_owned())).into(),
            },
        };
        assert_eq!(parse(json), Ok(expected));
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_range() {
        let cases = [
            (r#"{"listen_threads": 0}"#, "listen_threads: 0 is out of range; write 1 to 1024 threads"),
            (r#"{"threads": 1}"#, "threads: there is no such option; remove it"),
            (r#"{"telemetry": {}}"#, "telemetry: howdah does not support this option of NGINX Unit yet; remove it"),
            (r#"{"http": {"idle_timeout": 0}}"#, "http/idle_timeout: 0 is out of range; write 1 to 86400 seconds"),
            (
                r#"{"http": {"send_timeout": 1.5}}"#,
                "http/send_timeout: 1.5 is not a whole number; write 1 to 86400 seconds",
            ),
            (
                r#"{"http": {"max_body_size": 0}}"#,
                "http/max_body_size: 0 is out of range; write 1 to 1099511627776 bytes",
            ),
            (
                r#"{"http": {"body_buffer_size": -1}}"#,
                "http/body_buffer_size: -1 is out of range; write 0 to 1073741824 bytes",
            ),
            (r#"{"http": {"server_version": 1}}"#, "http/server_version: expected true or false, found the number 1"),
            (
                r#"{"http": {"websocket": {}}}"#,
                "http/websocket: howdah does not support this option of NGINX Unit yet; remove it",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("settings/{expected}")), "{json}");
        }
    }

    #[test]
    fn a_wrong_mime_type_is_refused() {
        let cases = [
            (r#"{"text": ".x"}"#, "text: this is not a MIME type; write one such as \"text/plain\""),
            (r#"{"a/b/c": ".x"}"#, "a%2Fb%2Fc: this is not a MIME type; write one such as \"text/plain\""),
            (r#"{"ä/b": ".x"}"#, "ä%2Fb: this is not a MIME type; write one such as \"text/plain\""),
            (
                r#"{"a/b": ["README"]}"#,
                "a%2Fb/0: \"README\" has no dot at its beginning; howdah does not support names of files here yet; \
                 write an extension, such as \".thing\"",
            ),
            (
                r#"{"a/b": ".tar.gz"}"#,
                "a%2Fb: \".tar.gz\" is not an extension; write what comes after a file's last dot, such as \".gz\"",
            ),
            (r#"{"a/b": ".x", "c/d": [".y", ".X"]}"#, "c%2Fd: \".x\" has the type \"a/b\" already; remove one"),
        ];
        for (json, expected) in cases {
            let error = parse(&format!(r#"{{"http": {{"static": {{"mime_types": {json}}}}}}}"#));
            assert_eq!(error, Err(format!("settings/http/static/mime_types/{expected}")), "{json}");
        }
    }
}
