//! `match`: which requests a step is for.

use crate::error::Error;
use crate::node::{Node, Options};
use crate::pattern::{Patterns, Subject};

const OPTIONS: Options = Options {
    known: &["method", "host", "uri"],
    not_yet: &["arguments", "cookies", "destination", "headers", "if", "query", "scheme", "source"],
};

/// Which requests a step is for: those that match every option. An empty one (the default) matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    method: Option<Patterns>,
    host: Option<Patterns>,
    uri: Option<Patterns>,
}

/// What conditions and templates see of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// In upper case.
    pub method: &'a str,
    /// In lower case, without the port; empty if the request names no host.
    pub host: &'a str,
    /// The path: percent-decoded, without `.` and `..` segments and doubled slashes, without the query.
    pub uri: &'a str,
}

// === impl Condition ===

impl Condition {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        Ok(Self {
            method: object.read("method", |node| Patterns::read(node, Subject::Method))?,
            host: object.read("host", |node| Patterns::read(node, Subject::Host))?,
            uri: object.read("uri", |node| Patterns::read(node, Subject::Uri))?,
        })
    }

    /// Whether the step is for this request.
    pub fn matches(&self, request: &RequestView<'_>) -> bool {
        let options = [(&self.method, request.method), (&self.host, request.host), (&self.uri, request.uri)];
        options.iter().all(|(patterns, text)| patterns.as_ref().is_none_or(|patterns| patterns.matches(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Condition, String> {
        let value = json::parse(json).expect("JSON");
        Condition::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_must_match() {
        let request = RequestView { method: "GET", host: "example.com", uri: "/x.php" };
        let cases = [
            ("{}", true),
            (r#"{"uri": "*.php"}"#, true),
            (r#"{"uri": "*.php", "host": "example.com", "method": ["get", "HEAD"]}"#, true),
            (r#"{"uri": "*.php", "host": "example.org"}"#, false),
            (r#"{"uri": "*.php", "method": "!GET"}"#, false),
            (r#"{"uri": "/", "host": "example.com"}"#, false),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json).expect(json).matches(&request), expected, "{json}");
        }
        assert!(Condition::default().matches(&request));
    }

    #[test]
    fn an_option_that_is_not_there_yet_is_named() {
        for option in OPTIONS.not_yet {
            let error = read(&format!(r#"{{"{option}": {{}}}}"#)).expect_err(option);
            assert_eq!(error, format!("{option}: howdah does not support this option of NGINX Unit yet; remove it"));
        }
        assert_eq!(read(r#"{"url": "/"}"#), Err("url: there is no such option; did you mean \"uri\"?".to_owned()));
    }
}
