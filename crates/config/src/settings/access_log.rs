//! `access_log`: where requests are logged, and in which format.

use crate::error::Error;
use crate::matching::predicate::Predicate;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::settings::log_destination::LogDestination;
use crate::settings::log_skip::LogSkip;
use crate::template::text::Template;

pub(crate) const OPTIONS: Options = Options { known: &["path", "format", "if", "skip"], unsupported: &[] };

/// The combined format, as of other servers.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request_line\" $status $body_bytes_sent \
                        \"$header_referer\" \"$header_user_agent\"";

/// How requests are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines are written.
    pub destination: LogDestination,
    /// The format of a line.
    pub format: LogFormat,
    /// The requests that are logged: those for which it is true; `None`: all requests.
    pub condition: Option<Predicate>,
    /// The requests among them that are not logged.
    pub skip: LogSkip,
}

/// The name of the format with stable names.
const STANDARD: &str = "json";
/// Its members. A name is not changed, and none is removed.
const STANDARD_MEMBERS: [(&str, &str); 15] = [
    ("time", "$time_iso8601"),
    ("application", "$application"),
    ("request_id", "$request_id"),
    ("trace_id", "$trace_id"),
    ("client", "$remote_addr"),
    ("user", "$remote_user"),
    ("host", "$host"),
    ("method", "$method"),
    ("uri", "$request_uri"),
    ("status", "$status"),
    ("body_bytes", "$body_bytes_sent"),
    ("seconds", "$request_time"),
    ("referer", "$header_referer"),
    ("user_agent", "$header_user_agent"),
    ("content_type", "$response_header_content_type"),
];

/// The format of a line. A variable without a value is written as `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A template without a line break. Default: the combined format.
    Text(Template),
    /// A JSON object with these members, all strings, in this order. There is at least one.
    Json(Vec<(String, Template)>),
    /// `"json"`: a JSON object with stable names, of strings, numbers, and null for absent values.
    Standard(Vec<(String, Template)>),
}

// === impl AccessLog ===

impl AccessLog {
    /// Reads `"/path"`, `"-"` or an object.
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        if !node.is_object() {
            let destination = LogDestination::read(node)?;
            return Ok(Self { destination, format: LogFormat::combined(), condition: None, skip: LogSkip::default() });
        }
        let object = node.object(&OPTIONS)?;
        let path = object.require("path", "the log's path, or \"-\" for standard output")?;
        Ok(Self {
            destination: LogDestination::read(&path)?,
            format: object.read("format", LogFormat::read)?.unwrap_or_else(LogFormat::combined),
            condition: object.read("if", Predicate::read)?,
            skip: object.read("skip", |node| LogSkip::read(node, scope))?.unwrap_or_default(),
        })
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// The combined format.
    pub fn combined() -> Self {
        Self::Text(Template::parse(COMBINED).expect("a test parses it"))
    }

    /// The object with stable names.
    fn standard() -> Self {
        let member = |(name, template): &(&str, &str)| {
            ((*name).to_owned(), Template::parse(template).expect("a test parses it"))
        };
        Self::Standard(STANDARD_MEMBERS.iter().map(member).collect())
    }

    fn read(node: &Node<'_>) -> Result<Self, Error> {
        if !node.is_object() {
            if !node.is_string() {
                return Err(node.expected("a string or an object of strings"));
            }
            if node.string()? == STANDARD {
                return Ok(Self::standard());
            }
            if node.string()?.contains(['\r', '\n']) {
                return Err(node.error("the format has a line break; remove it, because howdah adds one to each line"));
            }
            return Template::read(node).map(Self::Text);
        }
        let members = node.named()?.map(|(name, node)| Ok((name.to_owned(), Template::read(&node)?)));
        let members = members.collect::<Result<Vec<_>, Error>>()?;
        if members.is_empty() {
            return Err(node.error("the object is empty; add a member, as in \"uri\": \"$request_uri\""));
        }
        Ok(Self::Json(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::matching::test_request::TestRequest;

    fn parse(json: &str) -> Result<AccessLog, String> {
        let parsed = Configuration::parse(&format!(r#"{{"access_log": {json}}}"#));
        parsed.map(|configuration| configuration.access_log.expect("log")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_log_is_a_path_or_standard_output() {
        let path = LogDestination::Path("/var/log/x.log".into());
        let cases = [
            (r#""/var/log/x.log""#, path.clone()),
            (r#"{"path": "/var/log/x.log"}"#, path),
            (r#""-""#, LogDestination::Stdout),
            (r#"{"path": "-"}"#, LogDestination::Stdout),
            (r#""journald""#, LogDestination::Daemon("journald".parse().expect("a daemon"))),
            (r#"{"path": "syslog?tag=a"}"#, LogDestination::Daemon("syslog?tag=a".parse().expect("a daemon"))),
        ];
        for (json, destination) in cases {
            assert_eq!(
                parse(json),
                Ok(AccessLog { destination, format: LogFormat::combined(), condition: None, skip: LogSkip::default() })
            );
        }
    }

    #[test]
    fn a_line_is_text_or_json() {
        let template = |text: &str| Template::parse(text).expect(text);
        let text = parse(r#"{"path": "-", "format": "$method \"$uri\""}"#).expect("log");
        assert_eq!(text.format, LogFormat::Text(template("$method \"$uri\"")));
        let json = parse(r#"{"path": "-", "format": {"u": "$uri", "a": "x"}}"#).expect("log");
        assert_eq!(json.format, LogFormat::Json(vec![("u".into(), template("$uri")), ("a".into(), template("x"))]));
        let condition = parse(r#"{"path": "-", "if": "!$arg_quiet"}"#).expect("log").condition.expect("condition");
        assert!(condition.holds(&TestRequest::default()));
        assert!(!condition.holds(&TestRequest::default().with_query("quiet=1")));
    }

    #[test]
    fn the_format_with_stable_names_is_a_word() {
        let log = parse(r#"{"path": "-", "format": "json"}"#).expect("log");
        let LogFormat::Standard(members) = log.format else { panic!("{:?}", log.format) };
        assert_eq!(members.len(), STANDARD_MEMBERS.len());
        assert!(matches!(parse(r#"{"path": "-", "format": "json "}"#).expect("log").format, LogFormat::Text(_)));
    }

    #[test]
    fn an_error_names_the_option() {
        let cases = [
            (r#""x.log""#, ": \"x.log\" is not an absolute path; begin it with \"/\""),
            (r#""syslog?tag=""#, ": \"\" is no tag of syslog; write 1 to 48 printable ASCII characters without spaces"),
            ("{}", ": \"path\" is missing; add the log's path, or \"-\" for standard output"),
            ("false", ": expected a string; write \"false\", with quotes"),
            (
                r#"{"path": "-", "format": "$url"}"#,
                "/format: \"$url\" has the unknown variable \"url\"; did you mean \"uri\"?",
            ),
            (r#"{"path": "-", "format": 5}"#, "/format: expected a string or an object of strings, found the number 5"),
            (
                r#"{"path": "-", "format": "a\nb"}"#,
                "/format: the format has a line break; remove it, because howdah adds one to each line",
            ),
            (
                r#"{"path": "-", "format": {}}"#,
                "/format: the object is empty; add a member, as in \"uri\": \"$request_uri\"",
            ),
            (r#"{"path": "-", "format": {"a": 1}}"#, "/format/a: expected a string; write \"1\", with quotes"),
            (r#"{"path": "-", "if": 1}"#, "/if: expected a string; write \"1\", with quotes"),
            (r#"{"path": "-", "formt": ""}"#, "/formt: there is no such option; did you mean \"format\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("access_log{expected}")), "{json}");
        }
    }
}
