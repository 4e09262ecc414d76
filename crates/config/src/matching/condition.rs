//! `match`: the requests that a step is for.

use crate::error::{Error, quoted};
use crate::matching::address_pattern::AddressPatterns;
use crate::matching::fields::{FieldConditions, FieldKind};
use crate::matching::pattern::{Anchor, PatternSubject, Patterns};
use crate::matching::predicate::Predicate;
use crate::matching::request::{RequestView, Scheme};
use crate::read::node::{Node, Object, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options = Options {
    known: &[
        "method",
        "host",
        "uri",
        "query",
        "arguments",
        "cookies",
        "headers",
        "source",
        "destination",
        "scheme",
        "if",
    ],
    unsupported: &[],
};

/// The requests that a step is for: every option must match. An empty condition (the default) matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Cheap criteria come first, because the first one that does not match decides.
    criteria: Vec<Criterion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Criterion {
    Scheme(Scheme),
    Method(Patterns),
    Host(Patterns),
    Uri(Patterns),
    Source(AddressPatterns),
    Destination(AddressPatterns),
    Query(Patterns),
    Fields(FieldConditions),
    If(Predicate),
}

// === impl Condition ===

impl Condition {
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        Self::of(&node.object(&OPTIONS)?, scope)
    }

    /// The condition in an object that may have further options.
    pub(crate) fn of(object: &Object<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let patterns = |key, subject| object.read(key, |node| Patterns::read(node, subject, scope));
        let fields =
            |key, kind| Ok(object.read(key, |node| FieldConditions::read(node, kind, scope))?.map(Criterion::Fields));
        let criteria = [
            object.read("scheme", read_scheme)?.map(Criterion::Scheme),
            patterns("method", PatternSubject::Method)?.map(Criterion::Method),
            patterns("host", PatternSubject::Host)?.map(Criterion::Host),
            patterns("uri", PatternSubject::Uri)?.map(Criterion::Uri),
            object.read("source", AddressPatterns::read)?.map(Criterion::Source),
            object.read("destination", AddressPatterns::read)?.map(Criterion::Destination),
            patterns("query", PatternSubject::Query)?.map(Criterion::Query),
            fields("arguments", FieldKind::Arguments)?,
            fields("headers", FieldKind::Headers)?,
            fields("cookies", FieldKind::Cookies)?,
            object.read("if", Predicate::read)?.map(Criterion::If),
        ];
        Ok(Self { criteria: criteria.into_iter().flatten().collect() })
    }

    /// Whether the step is for this request.
    pub fn matches<R: RequestView + ?Sized>(&self, request: &R) -> bool {
        self.criteria.iter().all(|criterion| criterion.matches(request))
    }

    /// Literals of which the URI of a matching request has at least one; `None` if there are none.
    pub(crate) fn uri_anchors(&self) -> Option<Vec<Anchor<'_>>> {
        self.criteria
            .iter()
            .find_map(|criterion| if let Criterion::Uri(patterns) = criterion { patterns.anchors() } else { None })
    }

    /// Literals of which the host of a matching request has at least one; `None` if there are none.
    pub(crate) fn host_anchors(&self) -> Option<Vec<Anchor<'_>>> {
        self.criteria
            .iter()
            .find_map(|criterion| if let Criterion::Host(patterns) = criterion { patterns.anchors() } else { None })
    }
}

// === impl Criterion ===

impl Criterion {
    fn matches<R: RequestView + ?Sized>(&self, request: &R) -> bool {
        match self {
            Self::Scheme(scheme) => request.scheme() == *scheme,
            Self::Method(patterns) => patterns.matches(request.method().as_bytes()),
            Self::Host(patterns) => patterns.matches(request.host().as_bytes()),
            Self::Uri(patterns) => patterns.matches(request.uri().as_bytes()),
            Self::Source(patterns) => patterns.matches(request.source()),
            Self::Destination(patterns) => patterns.matches(request.destination()),
            Self::Query(patterns) => patterns.matches(request.query()),
            Self::Fields(fields) => fields.matches(request),
            Self::If(predicate) => predicate.holds(request),
        }
    }
}

fn read_scheme(node: &Node<'_>) -> Result<Scheme, Error> {
    let text = node.string()?;
    match text.to_ascii_lowercase().as_str() {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err(node.error(format_args!("{} is not a scheme; write \"http\" or \"https\"", quoted(&text)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::matching::request::Peer;
    use crate::matching::test_request::TestRequest;

    fn read(json: &str) -> Result<Condition, String> {
        let value = json::parse(json).expect("JSON");
        Condition::read(&Node::root(&value), &Scope::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_must_match() {
        let request = TestRequest { uri: "/x.php", ..TestRequest::default() };
        let request = request.with_query("a=1&b=x+y").with_cookies("c=1").with_header("User-Agent", "curl/8");
        let cases = [
            ("{}", true),
            (r#"{"uri": "*.php"}"#, true),
            (r#"{"uri": "*.php", "host": "example.com", "method": ["get", "HEAD"]}"#, true),
            (r#"{"uri": "*.php", "host": "example.org"}"#, false),
            (r#"{"uri": "*.php", "method": "!GET"}"#, false),
            (r#"{"uri": "/", "host": "example.com"}"#, false),
            (r#"{"scheme": "http"}"#, true),
            (r#"{"scheme": "HTTPS"}"#, false),
            (r#"{"query": "a=1&b=x y"}"#, true),
            (r#"{"query": "a=1"}"#, false),
            (r#"{"arguments": {"a": "1"}, "cookies": {"c": "1"}, "headers": {"user-agent": "CURL*"}}"#, true),
            (r#"{"arguments": {"a": "1"}, "cookies": {"c": "2"}}"#, false),
            (r#"{"source": "192.0.2.0/24", "destination": "*:80"}"#, true),
            (r#"{"source": "192.0.2.0/24", "destination": "*:81"}"#, false),
            (r#"{"if": "$arg_a"}"#, true),
            (r#"{"if": "$arg_none"}"#, false),
            (r#"{"uri": "~\\.php$", "if": "!$arg_a"}"#, false),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json).expect(json).matches(&request), expected, "{json}");
        }
        assert!(Condition::default().matches(&request));
        let unix = TestRequest { source: Peer::Unix, ..request };
        assert!(read(r#"{"source": "unix"}"#).expect("condition").matches(&unix));
    }

    #[test]
    fn a_wrong_option_is_named() {
        let cases = [
            (r#"{"url": "/"}"#, "url: there is no such option; did you mean \"uri\"?"),
            (r#"{"scheme": "ftp"}"#, "scheme: \"ftp\" is not a scheme; write \"http\" or \"https\""),
            (r#"{"scheme": ["http"]}"#, "scheme: expected a string, found an array"),
            (r#"{"query": {}}"#, "query: expected a string or an array of strings, found an object"),
            (r#"{"source": "here"}"#, "source: \"here\" is not a pattern for addresses; write one such as"),
            (r#"{"destination": 80}"#, "destination: expected a string or an array of strings, found the number 80"),
            (r#"{"headers": {"A": 1}}"#, "headers/A: expected a string or an array of strings, found the number 1"),
            (r#"{"if": "$"}"#, "if: \"$\" has a \"$\" without the name of a variable"),
            (r#"{"method": "~("}"#, "method: \"~(\" is not a regular expression"),
        ];
        for (json, expected) in cases {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
