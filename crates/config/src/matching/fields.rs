//! `arguments`, `cookies`, `headers`: conditions on the named fields of a request.
//!
//! An object has patterns for each field, and all fields must match; of an array of objects, one must match. An absent
//! field does not match, not even a negated pattern. A field that appears several times must match each time.

use crate::error::{Error, quoted};
use crate::matching::pattern::{PatternSubject, Patterns};
use crate::matching::request::RequestView;
use crate::read::header_name::is_header_name;
use crate::read::node::Node;
use crate::read::percent;
use crate::read::scope::Scope;

/// A condition on arguments, cookies or headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldConditions {
    kind: FieldKind,
    /// At least one of these must match, unless there are none.
    alternatives: Vec<Vec<FieldCondition>>,
}

/// The kind of field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Arguments,
    Cookies,
    Headers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldCondition {
    /// Headers in lower case.
    name: FieldName,
    patterns: Patterns,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldName {
    Bytes(Vec<u8>),
    Header(String),
}

// === impl FieldConditions ===

impl FieldConditions {
    /// Reads an object or an array of objects.
    pub fn read(node: &Node<'_>, kind: FieldKind, scope: &Scope<'_>) -> Result<Self, Error> {
        let alternatives = if node.is_array() {
            node.elements()?.map(|node| read_object(&node, kind, scope)).collect::<Result<Vec<_>, _>>()?
        } else if node.is_object() {
            vec![read_object(node, kind, scope)?]
        } else {
            return Err(node.expected("an object or an array of objects"));
        };
        Ok(Self { kind, alternatives })
    }

    pub fn matches<R: RequestView + ?Sized>(&self, request: &R) -> bool {
        self.alternatives.is_empty()
            || self.alternatives.iter().any(|fields| fields.iter().all(|field| self.field_matches(field, request)))
    }

    fn field_matches<R: RequestView + ?Sized>(&self, field: &FieldCondition, request: &R) -> bool {
        let mut present = false;
        let mut all_match = true;
        let mut visit = |value: &[u8]| {
            present = true;
            all_match = all_match && field.patterns.matches(value);
        };
        match (&field.name, self.kind) {
            (FieldName::Header(name), _) => request.for_each_header(name, &mut visit),
            (FieldName::Bytes(name), FieldKind::Cookies) => request.for_each_cookie(name, &mut visit),
            (FieldName::Bytes(name), _) => {
                let arguments = request.arguments().iter().filter(|argument| *argument.name == **name);
                arguments.for_each(|argument| visit(&argument.value));
            }
        }
        present && all_match
    }
}

fn read_object(node: &Node<'_>, kind: FieldKind, scope: &Scope<'_>) -> Result<Vec<FieldCondition>, Error> {
    let read = |(name, node): (&str, Node<'_>)| {
        let name = kind.name(name).map_err(|problem| node.error(format_args!("{} {problem}", quoted(name))))?;
        Ok(FieldCondition { name, patterns: Patterns::read(&node, kind.subject(), scope)? })
    };
    node.named()?.map(read).collect()
}

// === impl FieldKind ===

impl FieldKind {
    fn subject(self) -> PatternSubject {
        match self {
            Self::Arguments => PatternSubject::Query,
            Self::Cookies => PatternSubject::Cookie,
            Self::Headers => PatternSubject::Header,
        }
    }

    fn name(self, name: &str) -> Result<FieldName, &'static str> {
        match self {
            Self::Arguments => percent::decode_bytes(&name.replace('+', "%20")).map(FieldName::Bytes),
            Self::Cookies => Ok(FieldName::Bytes(name.into())),
            Self::Headers if is_header_name(name) => Ok(FieldName::Header(name.to_ascii_lowercase())),
            Self::Headers => Err("is not the name of a header; write one such as \"User-Agent\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::matching::test_request::TestRequest;

    fn read(json: &str, kind: FieldKind) -> Result<FieldConditions, String> {
        let value = json::parse(json).expect("JSON");
        FieldConditions::read(&Node::root(&value), kind, &Scope::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_needs_all_of_its_fields_and_an_array_one_object() {
        let request = TestRequest::default().with_query("key=foo&key=bar&a%20b=x%2Fy&e");
        let cases = [
            (r#"{"key": "*"}"#, true),
            (r#"{"key": "b*"}"#, false),
            (r#"{"key": ["foo", "bar"]}"#, true),
            (r#"{"key": "!baz"}"#, true),
            (r#"{"key": "!bar"}"#, false),
            (r#"{"Key": "*"}"#, false),
            (r#"{"none": "!x"}"#, false),
            (r#"{"a+b": "x/y", "key": "*"}"#, true),
            (r#"{"a%20b": "x%2fy"}"#, true),
            (r#"{"e": ""}"#, true),
            (r#"{"e": "", "none": "*"}"#, false),
            (r#"[{"none": "*"}, {"e": ""}]"#, true),
            (r#"[{"none": "*"}, {"e": "x"}]"#, false),
            ("{}", true),
            ("[]", true),
            (r#"[{"none": "*"}, {}]"#, true),
            (r#"{"e": []}"#, true),
            (r#"{"none": []}"#, false),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json, FieldKind::Arguments).expect(json).matches(&request), expected, "{json}");
        }
    }

    #[test]
    fn case_is_ignored_in_headers_and_matters_in_cookies() {
        let request = TestRequest::default()
            .with_header("User-Agent", "cURL/8")
            .with_header("X-A", "1")
            .with_header("X-A", "2")
            .with_cookies("session=Abc; lang=de");
        let cases = [
            (FieldKind::Headers, r#"{"user-agent": "curl*"}"#, true),
            (FieldKind::Headers, r#"{"USER-AGENT": "~^curl/\\d$"}"#, true),
            (FieldKind::Headers, r#"{"X-A": "1"}"#, false),
            (FieldKind::Headers, r#"{"X-A": "!3"}"#, true),
            (FieldKind::Cookies, r#"{"session": "Abc", "lang": ["de", "en"]}"#, true),
            (FieldKind::Cookies, r#"{"session": "abc"}"#, false),
            (FieldKind::Cookies, r#"{"Session": "*"}"#, false),
        ];
        for (kind, json, expected) in cases {
            assert_eq!(read(json, kind).expect(json).matches(&request), expected, "{json}");
        }
    }

    #[test]
    fn an_invalid_condition_is_rejected() {
        let cases = [
            (FieldKind::Arguments, "\"a\"", "expected an object or an array of objects, found the string \"a\""),
            (FieldKind::Arguments, r#"{"a": 1}"#, "a: expected a string or an array of strings, found the number 1"),
            (FieldKind::Arguments, r#"[{"a%": "x"}]"#, "0/a%25: \"a%\" has a \"%\" without two hexadecimal digits"),
            (FieldKind::Headers, r#"{"a b": "x"}"#, "a b: \"a b\" is not the name of a header; write one such as"),
            (FieldKind::Cookies, r#"{"a": "~("}"#, "a: \"~(\" is not a regular expression"),
        ];
        for (kind, json, expected) in cases {
            let error = read(json, kind).expect_err(json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
