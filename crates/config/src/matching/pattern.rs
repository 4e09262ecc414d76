//! Patterns, with which a match option compares a part of the request.
//!
//! `*` stands for any text and may appear anywhere and repeatedly. `!` before a pattern negates it, and `~` makes it a
//! regular expression. In patterns of URIs, queries and arguments, percent escapes stand for the special characters:
//! `%2A`, `%21`, `%7E`, `%25`. Matching allocates nothing and takes time in proportion to the text and the pattern,
//! whatever they contain: clients choose the text.

use memchr::memmem::Finder;

use crate::error::{Error, quoted};
use crate::json::JsonValue;
use crate::matching::regular_expression::RegularExpression;
use crate::read::node::Node;
use crate::read::percent;
use crate::read::scope::Scope;

/// The texts that a match option accepts: at least one positive pattern must match (if there are any), and no negative
/// one may. Without any pattern, every text is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns {
    positive: Vec<Pattern>,
    negative: Vec<Pattern>,
}

/// A text with wildcards, or a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Text { text: Box<[u8]>, case: Case },
    Wildcard(Wildcard),
    Regex(RegularExpression),
}

/// A text with at least one wildcard.
#[derive(Clone, Debug)]
pub(crate) struct Wildcard {
    /// The part before the first wildcard.
    prefix: Box<[u8]>,
    /// The parts between wildcards, in their order. Empty if case is ignored.
    inner: Vec<Finder<'static>>,
    /// The part after the last wildcard.
    suffix: Box<[u8]>,
    case: Case,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Matters,
    IsIgnored,
}

/// The part of a request (or the type of a file) that the patterns of an option match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternSubject {
    /// In upper case.
    Method,
    /// In lower case.
    Host,
    /// Percent-decoded.
    Uri,
    /// Percent-decoded, with spaces for plus signs. Also the values of arguments.
    Query,
    /// As sent.
    Cookie,
    /// As sent; case is ignored.
    Header,
    /// In lower case; empty if the type is unknown.
    MimeType,
}

/// A literal that a text must equal, begin with or end with to match a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Anchor<'a> {
    Whole(&'a [u8]),
    Start(&'a [u8]),
    End(&'a [u8]),
}

// === impl Patterns ===

impl Patterns {
    /// Reads a string or an array of strings.
    pub(crate) fn read(node: &Node<'_>, subject: PatternSubject, scope: &Scope<'_>) -> Result<Self, Error> {
        let mut patterns = Self { positive: Vec::new(), negative: Vec::new() };
        let read = |node: &Node<'_>| {
            let text = node.string()?;
            let negated = text.strip_prefix('!');
            let pattern = negated.unwrap_or(&text);
            if pattern.starts_with('~') {
                scope.count_regular_expression(node)?;
            }
            let pattern = Pattern::parse(pattern, subject)
                .and_then(|parsed| match parsed.may_match(subject) || (negated.is_some() && pattern.is_empty()) {
                    true => Ok(parsed),
                    false => Err(never_matches(negated.is_some())),
                })
                .map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))?;
            Ok((negated.is_some(), pattern))
        };
        for (negated, pattern) in node.one_or_many(read)? {
            if negated { &mut patterns.negative } else { &mut patterns.positive }.push(pattern);
        }
        Ok(patterns)
    }

    /// Reads patterns of paths again, as they are written.
    ///
    /// # Errors
    /// With the first pattern that is wrong.
    pub fn of_paths(texts: &[String]) -> Result<Self, Error> {
        let texts = JsonValue::Array(texts.iter().cloned().map(JsonValue::String).collect());
        Self::read(&Node::root(&texts), PatternSubject::Uri, &Scope::default())
    }

    /// Whether these patterns accept the text.
    pub fn matches(&self, text: &[u8]) -> bool {
        (self.positive.is_empty() || self.positive.iter().any(|pattern| pattern.matches(text)))
            && !self.negative.iter().any(|pattern| pattern.matches(text))
    }

    /// The anchors, one for each positive pattern; `None` if a text may match without any of them. They are valid for
    /// subjects whose case matters, or whose texts have the same case as the patterns.
    pub(crate) fn anchors(&self) -> Option<Vec<Anchor<'_>>> {
        if self.positive.is_empty() {
            return None;
        }
        self.positive.iter().map(Pattern::anchor).collect()
    }
}

// === impl Pattern ===

impl Pattern {
    /// Parses a pattern. The error is what is wrong with the text, to follow the text in a message.
    fn parse(text: &str, subject: PatternSubject) -> Result<Self, String> {
        if let Some(expression) = text.strip_prefix('~') {
            return RegularExpression::parse(expression, subject.ignores_case()).map(Self::Regex);
        }
        let literals = text.split('*').map(|part| subject.literal(part)).collect::<Result<Vec<_>, _>>()?;
        Self::from_literals(literals, subject.case())
    }

    /// Makes a pattern of the literals between the wildcards.
    fn from_literals(mut literals: Vec<Vec<u8>>, case: Case) -> Result<Self, String> {
        // Splitting a text gives at least one part.
        let first = literals.remove(0).into_boxed_slice();
        let Some(last) = literals.pop() else {
            return Ok(Self::Text { text: first, case });
        };
        literals.retain(|literal| !literal.is_empty());
        if case == Case::IsIgnored && !literals.is_empty() {
            return Self::expression_ignoring_case(&first, &literals, &last);
        }
        let inner = literals.iter().map(|literal| Finder::new(literal).into_owned()).collect();
        Ok(Self::Wildcard(Wildcard { prefix: first, inner, suffix: last.into(), case }))
    }

    /// A search that ignores case is left to a regular expression.
    fn expression_ignoring_case(first: &[u8], inner: &[Vec<u8>], last: &[u8]) -> Result<Self, String> {
        // These subjects are not percent-decoded, so the literals are text.
        let escaped = |literal: &[u8]| regex::escape(&String::from_utf8_lossy(literal));
        let inner: String = inner.iter().map(|literal| format!("{}(?s-u:.*)", escaped(literal))).collect();
        let expression = format!("^{}(?s-u:.*){inner}{}$", escaped(first), escaped(last));
        RegularExpression::parse(&expression, true).map(Self::Regex)
    }

    /// Whether the whole text matches the pattern.
    pub fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Text { text: expected, case } => case.equal(expected, text),
            Self::Wildcard(wildcard) => wildcard.matches(text),
            Self::Regex(expression) => expression.is_match(text),
        }
    }

    fn anchor(&self) -> Option<Anchor<'_>> {
        match self {
            Self::Text { text, .. } => Some(Anchor::Whole(text)),
            Self::Wildcard(wildcard) if !wildcard.prefix.is_empty() => Some(Anchor::Start(&wildcard.prefix)),
            Self::Wildcard(wildcard) if !wildcard.suffix.is_empty() => Some(Anchor::End(&wildcard.suffix)),
            Self::Regex(expression) if !expression.prefix().is_empty() => Some(Anchor::Start(expression.prefix())),
            Self::Wildcard(_) | Self::Regex(_) => None,
        }
    }

    /// Whether any text can match: every path begins with a slash.
    fn may_match(&self, subject: PatternSubject) -> bool {
        match self {
            _ if subject != PatternSubject::Uri => true,
            Self::Text { text, .. } => text.starts_with(b"/"),
            Self::Wildcard(wildcard) => wildcard.prefix.is_empty() || wildcard.prefix.starts_with(b"/"),
            Self::Regex(_) => true,
        }
    }
}

/// The error for a pattern that no path matches. `!` alone is allowed: it matches every request.
fn never_matches(negated: bool) -> String {
    let (what, begin) = if negated { ("every", "what follows the \"!\"") } else { ("no", "it") };
    format!("matches {what} request, because every path begins with \"/\"; begin {begin} with \"/\" or \"*\"")
}

// === impl Wildcard ===

impl Wildcard {
    fn matches(&self, text: &[u8]) -> bool {
        let (prefix, suffix) = (&*self.prefix, &*self.suffix);
        if text.len() < prefix.len() + suffix.len() {
            return false;
        }
        let (start, rest) = text.split_at(prefix.len());
        let (mut rest, end) = rest.split_at(rest.len() - suffix.len());
        if !self.case.equal(prefix, start) || !self.case.equal(suffix, end) {
            return false;
        }
        // The leftmost occurrence of each part leaves the most text for the next parts, so no backtracking is needed.
        for part in &self.inner {
            match part.find(rest) {
                Some(at) => rest = &rest[at + part.needle().len()..],
                None => return false,
            }
        }
        true
    }
}

impl PartialEq for Wildcard {
    fn eq(&self, other: &Self) -> bool {
        let needles = |wildcard: &Self| wildcard.inner.iter().map(|part| part.needle().to_vec()).collect::<Vec<_>>();
        (&self.prefix, &self.suffix, self.case) == (&other.prefix, &other.suffix, other.case)
            && needles(self) == needles(other)
    }
}

impl Eq for Wildcard {}

// === impl Case ===

impl Case {
    fn equal(self, expected: &[u8], text: &[u8]) -> bool {
        match self {
            Self::Matters => expected == text,
            Self::IsIgnored => expected.eq_ignore_ascii_case(text),
        }
    }
}

// === impl PatternSubject ===

impl PatternSubject {
    fn literal(self, part: &str) -> Result<Vec<u8>, &'static str> {
        match self {
            Self::Method => Ok(part.to_ascii_uppercase().into()),
            Self::Host | Self::Header | Self::MimeType => Ok(part.to_ascii_lowercase().into()),
            Self::Uri => percent::decode_bytes(part),
            Self::Query => percent::decode_bytes(&part.replace('+', "%20")),
            Self::Cookie => Ok(part.into()),
        }
    }

    /// How plain patterns compare. Methods, hosts and MIME types already have the case of their patterns.
    fn case(self) -> Case {
        if self == Self::Header { Case::IsIgnored } else { Case::Matters }
    }

    fn ignores_case(self) -> bool {
        matches!(self, Self::Method | Self::Host | Self::Header | Self::MimeType)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cpu_clock::CpuClock;
    use crate::json;

    fn read(json: &str, subject: PatternSubject) -> Result<Patterns, String> {
        let value = json::parse(json).expect("JSON");
        Patterns::read(&Node::root(&value), subject, &Scope::default()).map_err(|error| error.to_string())
    }

    fn matches(json: &str, subject: PatternSubject, text: &str) -> bool {
        read(json, subject).expect(json).matches(text.as_bytes())
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
            ("~^/a.c$", "/abc", true),
            ("~^/A", "/a", false),
            ("!~^/a", "/a", false),
            ("!~^/a", "/b", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(&format!("\"{pattern}\""), PatternSubject::Uri, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_array_needs_one_positive_match_and_no_negative_one() {
        let cases = [
            (r#"["/a*", "/b*"]"#, "/b", true),
            (r#"["/a*", "/b*"]"#, "/c", false),
            (r#"["/a*", "!/ab*"]"#, "/aa", true),
            (r#"["!/ab*", "/a*"]"#, "/abc", false),
            (r#"["/a*", "!~\\d{2}"]"#, "/a12", false),
            (r#"["!/a*", "!/b*"]"#, "/c", true),
            (r#"["!/a*", "!/b*"]"#, "/b", false),
            (r#""!/a""#, "/b", true),
            (r#""!*""#, "/b", false),
        ];
        for (json, text, expected) in cases {
            assert_eq!(matches(json, PatternSubject::Uri, text), expected, "{json} {text}");
        }
    }

    #[test]
    fn each_subject_has_its_case_and_its_escapes() {
        let cases = [
            (PatternSubject::Host, "*.Example.COM", "www.example.com", true),
            (PatternSubject::Host, "~^WWW\\\\.", "www.example.com", true),
            (PatternSubject::Host, "", "", true),
            (PatternSubject::Host, "%41", "a", false),
            (PatternSubject::Method, "get", "GET", true),
            (PatternSubject::Method, "!post", "GET", true),
            (PatternSubject::Uri, "/a%2Ab", "/a*b", true),
            (PatternSubject::Uri, "/a%2Ab", "/axb", false),
            (PatternSubject::Uri, "/%7e%25", "/~%", true),
            (PatternSubject::Uri, "%2Fx", "/x", true),
            (PatternSubject::Uri, "/a+b", "/a+b", true),
            (PatternSubject::Query, "a+b", "a b", true),
            (PatternSubject::Query, "a%2Bb", "a+b", true),
            (PatternSubject::Cookie, "A%41", "A%41", true),
            (PatternSubject::Cookie, "a", "A", false),
            (PatternSubject::Header, "Curl*", "cURL/8", true),
            (PatternSubject::Header, "*GZIP*", "br, gzip;q=1", true),
            (PatternSubject::Header, "a*B*c", "AxbxC", true),
            (PatternSubject::Header, "a*b.*c", "axbxc", false),
            (PatternSubject::Header, "*ä*", "xäx", true),
            (PatternSubject::MimeType, "!", "", false),
            (PatternSubject::MimeType, "Image/*", "image/png", true),
            (PatternSubject::MimeType, "~video/3gpp2?", "video/3gpp", true),
        ];
        for (subject, pattern, text, expected) in cases {
            assert_eq!(matches(&format!("\"{pattern}\""), subject, text), expected, "{subject:?} {pattern} {text}");
        }
        assert!(read("\"*%C3*\"", PatternSubject::Query).expect("pattern").matches("Ö".as_bytes()));
    }

    #[test]
    fn without_patterns_any_text_is_accepted() {
        for (json, subject) in
            [("[]", PatternSubject::Host), ("[]", PatternSubject::Uri), ("\"!\"", PatternSubject::Uri)]
        {
            assert!(matches(json, subject, "/x") && read(json, subject).expect(json).anchors().is_none(), "{json}");
        }
    }

    #[test]
    fn a_pattern_that_is_certainly_a_mistake_is_rejected() {
        let cases = [
            (PatternSubject::Uri, r#""~^/x(""#, "\"~^/x(\" is not a regular expression"),
            (PatternSubject::Host, r#"["!~x(?=y)"]"#, "0: \"!~x(?=y)\" is a regular expression with look-around"),
            (PatternSubject::Uri, r#""admin""#, "\"admin\" matches no request, because every path begins with \"/\""),
            (PatternSubject::Uri, r#""""#, "\"\" matches no request"),
            (
                PatternSubject::Uri,
                r#""!a""#,
                "\"!a\" matches every request, because every path begins with \"/\"; begin what follows",
            ),
            (PatternSubject::Uri, r#""/%2""#, "has a \"%\" without two hexadecimal digits"),
            (PatternSubject::Host, "[1]", "0: expected a string; write \"1\", with quotes"),
            (PatternSubject::Host, "{}", "expected a string or an array of strings, found an object"),
        ];
        for (subject, json, expected) in cases {
            let error = read(json, subject).expect_err(json);
            assert!(error.contains(expected), "{json}: {error}");
        }
    }

    #[test]
    fn matching_time_is_bounded_for_every_pattern() {
        let pattern = format!("\"/{}*b\"", "*a".repeat(10_000));
        let patterns = read(&pattern, PatternSubject::Uri).expect("pattern");
        let clock = CpuClock::start();
        assert!(!patterns.matches(format!("/{}", "a".repeat(100_000)).as_bytes()));
        assert!(!patterns.matches(format!("/{}b", "a".repeat(9_999)).as_bytes()));
        assert!(patterns.matches(format!("/{}b", "a".repeat(10_000)).as_bytes()));
        assert!(clock.elapsed() < Duration::from_secs(5));
    }
}
