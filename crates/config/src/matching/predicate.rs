//! `if`: a text with variables that is true or false for a request.
//!
//! It is false if it is empty, `0`, `false`, `null` or `undefined`; `!` before it negates it.

use crate::error::{Error, quoted};
use crate::read::node::Node;
use crate::template::text::{self, Template};
use crate::template::variable::Variables;

const FALSE: [&str; 5] = ["", "0", "false", "null", "undefined"];

/// A text that is true or false for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    template: Template,
    negated: bool,
}

// === impl Predicate ===

impl Predicate {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        let (negated, source) = match text.strip_prefix('!') {
            Some(source) => (true, source),
            None => (false, text.as_str()),
        };
        let template = text::parse(source);
        let template = template.map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))?;
        Ok(Self { template, negated })
    }

    /// Whether the text is true for this request.
    pub fn holds<V: Variables + ?Sized>(&self, variables: &V) -> bool {
        FALSE.contains(&&*self.template.render(variables)) == self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::matching::test_request::TestRequest;

    #[test]
    fn a_text_is_true_or_false() {
        let request = TestRequest::default().with_query("zero=0&one=1&empty").with_header("Accept", "text/html");
        let cases = [
            ("$arg_one", true),
            ("!$arg_one", false),
            ("$arg_zero", false),
            ("$arg_empty", false),
            ("!$arg_none", true),
            ("$header_accept", true),
            ("$arg_zero$arg_zero", true),
            ("", false),
            ("!", true),
            ("false", false),
            ("null", false),
            ("undefined", false),
            ("no", true),
            ("!!x", false),
        ];
        for (text, expected) in cases {
            let value = json::parse(&format!("\"{text}\"")).expect("JSON");
            let predicate = Predicate::read(&Node::root(&value)).expect(text);
            assert_eq!(predicate.holds(&request), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_text_is_rejected() {
        for (json, expected) in [
            (r#""!$url""#, "\"!$url\" has the unknown variable \"url\"; did you mean \"uri\"?"),
            (r#""`${uri == '/'}`""#, "\"`${uri == '/'}`\" is a JavaScript template, which howdah does not run"),
            ("true", "expected a string; write \"true\", with quotes"),
        ] {
            let value = json::parse(json).expect("JSON");
            let error = Predicate::read(&Node::root(&value)).expect_err(json).to_string();
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
