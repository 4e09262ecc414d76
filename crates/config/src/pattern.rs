//! Patterns: what a match option compares a part of the request with.
//!
//! `*` stands for any text, at any place and any number of times. `!` before a pattern negates it. In a URI's
//! pattern, percent escapes stand for the characters that would otherwise be special: `%2A`, `%21`, `%7E`, `%25`.
//! Matching takes time in proportion to the text and the pattern, whatever they hold.

use crate::error::{Error, quoted};
use crate::node::Node;
use crate::percent;

/// What a match option accepts: at least one of the positive patterns (if there are any) and none of the negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns {
    positive: Vec<Pattern>,
    negative: Vec<Pattern>,
}

/// Text with wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What the text begins with; all of it if there is no wildcard.
    prefix: String,
    /// What comes between wildcards, in this order.
    inner: Vec<String>,
    /// What the text ends with, after the last wildcard; `None` if there is no wildcard.
    suffix: Option<String>,
}

/// What the patterns of an option are compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Compared in upper case.
    Method,
    /// Compared in lower case.
    Host,
    /// Compared as it is, after percent-decoding.
    Uri,
}

// === impl Patterns ===

impl Patterns {
    /// From a string or an array of strings.
    pub(crate) fn read(node: &Node<'_>, subject: Subject) -> Result<Self, Error> {
        let mut patterns = Self { positive: Vec::new(), negative: Vec::new() };
        let read = |node: &Node<'_>| {
            let text = node.string()?;
            let negated = text.strip_prefix('!');
            let pattern = Pattern::parse(negated.unwrap_or(&text), subject)
                .map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))?;
            Ok((negated.is_some(), pattern))
        };
        for (negated, pattern) in node.one_or_many(read)? {
            if negated { &mut patterns.negative } else { &mut patterns.positive }.push(pattern);
        }
        if patterns.positive.is_empty() && patterns.negative.is_empty() {
            return Err(node.error("no request matches an empty array; add a pattern or remove the option"));
        }
        Ok(patterns)
    }

    /// Whether these patterns accept the text.
    pub fn matches(&self, text: &str) -> bool {
        (self.positive.is_empty() || self.positive.iter().any(|pattern| pattern.matches(text)))
            && !self.negative.iter().any(|pattern| pattern.matches(text))
    }
}

// === impl Pattern ===

impl Pattern {
    /// The pattern, or what is wrong with the text, said of the text.
    fn parse(text: &str, subject: Subject) -> Result<Self, String> {
        if text.starts_with('~') {
            let advice = if subject == Subject::Uri { "; write %7E for a plain ~" } else { "" };
            return Err(format!("is a regular expression, which howdah does not support yet; use * wildcards{advice}"));
        }
        let literal = |part: &str| match subject {
            Subject::Method => Ok(part.to_ascii_uppercase()),
            Subject::Host => Ok(part.to_ascii_lowercase()),
            Subject::Uri => percent::decode(part),
        };
        let mut parts = text.split('*').map(literal).collect::<Result<Vec<_>, _>>()?;
        // `split` makes one part at least.
        let suffix = if parts.len() > 1 { parts.pop() } else { None };
        let prefix = parts.remove(0);
        parts.retain(|part| !part.is_empty());
        let pattern = Self { prefix, inner: parts, suffix };
        if subject == Subject::Uri && !pattern.may_match_a_path() {
            return Err("matches no request, because every path begins with \"/\"; begin it with \"/\" or \"*\"".into());
        }
        Ok(pattern)
    }

    /// Whether the whole text fits the pattern.
    pub fn matches(&self, text: &str) -> bool {
        let Some(suffix) = &self.suffix else {
            return text == self.prefix;
        };
        let Some(mut rest) =
            text.strip_prefix(self.prefix.as_str()).and_then(|rest| rest.strip_suffix(suffix.as_str()))
        else {
            return false;
        };
        // The leftmost place of each part leaves the most for the next ones: there is never a reason to go back.
        for part in &self.inner {
            match rest.split_once(part.as_str()) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }

    fn may_match_a_path(&self) -> bool {
        self.prefix.starts_with('/') || (self.prefix.is_empty() && self.suffix.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::json;

    fn read(json: &str, subject: Subject) -> Result<Patterns, String> {
        let value = json::parse(json).expect("JSON");
        Patterns::read(&Node::root(&value), subject).map_err(|error| error.to_string())
    }

    fn matches(json: &str, subject: Subject, text: &str) -> bool {
        read(json, subject).expect(json).matches(text)
    }

    #[test]
    fn a_wildcard_stands_for_any_text() {
        let cases = [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/A", false),
            ("*", "", true),
            ("*", "/x", true),
            ("/a*", "/a", true),
            ("/a*", "/ab/c", true),
            ("/a*", "/b", false),
            ("*.php", "/x.php", true),
            ("*.php", "/x.php/y", false),
            ("*.php/*", "/x.php/y", true),
            ("*.php/*", "/x.php", false),
            ("/a*a", "/a", false),
            ("/a*a", "/aa", true),
            ("/*/x/*/y", "/1/x/2/y", true),
            ("/*/x/*/y", "/1/x/y", false),
            ("*ab*ab*", "aab-ab", true),
            ("*ab*ab*", "aab", false),
            ("/**/x", "/a/x", true),
            ("**", "", true),
            ("/ä*ö", "/ä✓ö", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(&format!("\"{pattern}\""), Subject::Uri, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_array_wants_one_positive_and_no_negative_pattern() {
        let cases = [
            (r#"["/a*", "/b*"]"#, "/b", true),
            (r#"["/a*", "/b*"]"#, "/c", false),
            (r#"["/a*", "!/ab*"]"#, "/aa", true),
            (r#"["!/ab*", "/a*"]"#, "/abc", false),
            (r#"["!/a*", "!/b*"]"#, "/c", true),
            (r#"["!/a*", "!/b*"]"#, "/b", false),
            (r#""!/a""#, "/b", true),
            (r#""!*""#, "/b", false),
        ];
        for (json, text, expected) in cases {
            assert_eq!(matches(json, Subject::Uri, text), expected, "{json} {text}");
        }
    }

    #[test]
    fn hosts_and_methods_disregard_case_and_uris_are_decoded() {
        let cases = [
            (Subject::Host, "*.Example.COM", "www.example.com", true),
            (Subject::Host, "", "", true),
            (Subject::Host, "%41", "a", false),
            (Subject::Method, "get", "GET", true),
            (Subject::Method, "!post", "GET", true),
            (Subject::Uri, "/a%2Ab", "/a*b", true),
            (Subject::Uri, "/a%2Ab", "/axb", false),
            (Subject::Uri, "/%7e%25", "/~%", true),
            (Subject::Uri, "%2Fx", "/x", true),
        ];
        for (subject, pattern, text, expected) in cases {
            assert_eq!(matches(&format!("\"{pattern}\""), subject, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_meant_is_refused() {
        let cases = [
            (
                Subject::Uri,
                r#""~^/x""#,
                "is a regular expression, which howdah does not support yet; use * wildcards; write %7E",
            ),
            (Subject::Host, r#"["!~x"]"#, "0: \"!~x\" is a regular expression, which howdah does not support yet"),
            (Subject::Uri, r#""admin""#, "\"admin\" matches no request, because every path begins with \"/\""),
            (Subject::Uri, r#""!""#, "\"!\" matches no request"),
            (Subject::Uri, r#""/%2""#, "has a \"%\" without two hexadecimal digits"),
            (Subject::Host, "[]", "no request matches an empty array; add a pattern or remove the option"),
            (Subject::Host, "[1]", "0: expected a string; write \"1\", with quotes"),
            (Subject::Host, "{}", "expected a string or an array of strings, found an object"),
        ];
        for (subject, json, expected) in cases {
            let error = read(json, subject).expect_err(json);
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn no_pattern_takes_long() {
        let pattern = format!("\"/{}*b\"", "*a".repeat(10_000));
        let patterns = read(&pattern, Subject::Uri).expect("pattern");
        let start = Instant::now();
        assert!(!patterns.matches(&format!("/{}", "a".repeat(100_000))));
        assert!(!patterns.matches(&format!("/{}b", "a".repeat(9_999))));
        assert!(patterns.matches(&format!("/{}b", "a".repeat(10_000))));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
