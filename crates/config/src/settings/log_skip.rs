//! `access_log/skip`: requests that are not logged, by the options of `match` and by the status of the response.

use std::ops::RangeInclusive;

use crate::error::Error;
use crate::matching::condition::{self, Condition};
use crate::matching::request::RequestView;
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::read::status;

pub(crate) const OPTIONS: Options = Options { known: &KNOWN, unsupported: &[] };

/// The options of `match`, and `status`.
const KNOWN: [&str; condition::OPTIONS.known.len() + 1] = {
    let mut known = ["status"; condition::OPTIONS.known.len() + 1];
    let (_, of_match) = known.split_at_mut(1);
    of_match.copy_from_slice(condition::OPTIONS.known);
    known
};

/// Requests that are not logged: those that match one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSkip {
    alternatives: Vec<SkipCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SkipCondition {
    request: Condition,
    /// `None`: any status.
    statuses: Option<Vec<RangeInclusive<u16>>>,
}

// === impl LogSkip ===

impl LogSkip {
    /// Reads an object or an array of objects.
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let alternatives = if node.is_array() {
            node.elements()?.map(|node| SkipCondition::read(&node, scope)).collect::<Result<_, _>>()?
        } else if node.is_object() {
            vec![SkipCondition::read(node, scope)?]
        } else {
            return Err(node.expected("an object or an array of objects"));
        };
        Ok(Self { alternatives })
    }

    /// Whether every request is logged.
    pub fn is_empty(&self) -> bool {
        self.alternatives.is_empty()
    }

    /// Whether this request with this status is not logged.
    pub fn matches<R: RequestView + ?Sized>(&self, request: &R, status: u16) -> bool {
        let matches = |skip: &SkipCondition| {
            skip.statuses.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&status)))
                && skip.request.matches(request)
        };
        self.alternatives.iter().any(matches)
    }
}

// === impl SkipCondition ===

impl SkipCondition {
    fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let statuses = object.read("status", |node| match node.is_array() {
            true => node.elements()?.map(|node| status::range(&node)).collect(),
            false => status::range(node).map(|range| vec![range]),
        })?;
        let request = Condition::of(&object, scope)?;
        if statuses.is_none() && request == Condition::default() {
            return Err(node.error("without a condition no request is logged; add one, or remove \"access_log\""));
        }
        Ok(Self { request, statuses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::matching::test_request::TestRequest;

    fn read(json: &str) -> Result<LogSkip, String> {
        let value = json::parse(json).expect("JSON");
        LogSkip::read(&Node::root(&value), &Scope::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_alternative_with_all_of_its_conditions_matches() {
        let skip = read(r#"[{"uri": "/health"}, {"status": [304, "200-299"], "headers": {"User-Agent": "probe*"}}]"#);
        let skip = skip.expect("skip");
        let request = |uri, agent| TestRequest { uri, ..TestRequest::default() }.with_header("User-Agent", agent);
        for (uri, agent, status, expected) in [
            ("/health", "curl", 500, true),
            ("/", "curl", 200, false),
            ("/", "probe/1", 200, true),
            ("/", "probe/1", 299, true),
            ("/", "probe/1", 300, false),
            ("/", "probe/1", 304, true),
        ] {
            assert_eq!(skip.matches(&request(uri, agent), status), expected, "{uri} {agent} {status}");
        }
        assert!(!LogSkip::default().matches(&request("/", "curl"), 200));
    }

    #[test]
    fn a_wrong_condition_is_named() {
        for (json, expected) in [
            ("{}", "without a condition no request is logged"),
            (r#"{"status": "4xx"}"#, "status: \"4xx\" is not a range of statuses; write a status such as 404"),
            (r#"{"status": "399-200"}"#, "status: \"399-200\" is not a range"),
            (r#"{"status": 99}"#, "status: 99 is out of range; write 100 to 999 (an HTTP status)"),
            (r#"[{"url": "/"}]"#, "0/url: there is no such option; did you mean \"uri\"?"),
            ("true", "expected an object or an array of objects"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
