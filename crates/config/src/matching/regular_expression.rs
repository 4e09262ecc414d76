//! Regular expressions, matched in time proportional to the text, whatever it contains.
//!
//! NGINX Unit uses PCRE. PCRE's features beyond regular languages (look-around, back-references, atomic groups,
//! possessive quantifiers) are rejected by name; the common features have the same meaning ([`pcre`]): `\d`, `\w` and
//! `\s` are ASCII.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::error::quoted;
use crate::matching::pcre;

/// The limit of a compiled expression. Nested bounded repetitions reach it before they take long to compile.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression.
#[derive(Clone)]
pub(crate) struct RegularExpression {
    regex: Regex,
    ignore_case: bool,
    /// The literal with which every matching text begins; often empty.
    prefix: Box<[u8]>,
}

// === impl RegularExpression ===

impl RegularExpression {
    /// Parses an expression. The error follows the expression in a message.
    pub fn parse(source: &str, ignore_case: bool) -> Result<Self, String> {
        let source = &pcre::translate(source)?;
        // As in PCRE, classes are ASCII and a dot is a byte, unless the expression itself has letters beyond ASCII.
        let unicode = !source.is_ascii();
        let mut builder = RegexBuilder::new(source);
        builder.unicode(unicode).case_insensitive(ignore_case).size_limit(MAX_COMPILED_BYTES);
        let regex = builder.build().map_err(|error| explain(&error))?;
        let prefix = if ignore_case { Box::default() } else { constant_prefix(source, unicode) };
        Ok(Self { regex, ignore_case, prefix })
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The literal with which every matching text begins; often empty.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

impl PartialEq for RegularExpression {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.ignore_case == other.ignore_case
    }
}

impl Eq for RegularExpression {}

impl fmt::Debug for RegularExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{}", self.regex.as_str())
    }
}

fn explain(error: &regex::Error) -> String {
    if let regex::Error::CompiledTooBig(_) = error {
        return "is a regular expression that is too big when it is compiled; shorten its repetitions".into();
    }
    let message = error.to_string();
    if message.contains("look-around") {
        return pcre::only_pcre("look-around: (?=, (?!, (?<= or (?<!");
    }
    if message.contains("backreferences") {
        return pcre::only_pcre("back-references");
    }
    // The last line of the message is "error: " and the problem; the other lines show the expression.
    let problem = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("is not a regular expression ({}); correct it", quoted(problem).trim_matches('"'))
}

/// The literal after a `^` at the beginning.
fn constant_prefix(source: &str, unicode: bool) -> Box<[u8]> {
    let parsed = regex_syntax::ParserBuilder::new().unicode(unicode).utf8(false).build().parse(source);
    // The expression has been compiled already, so it parses.
    parsed.map(|hir| literal_after_start(&hir)).unwrap_or_default()
}

fn literal_after_start(hir: &Hir) -> Box<[u8]> {
    let HirKind::Concat(parts) = hir.kind() else {
        return Box::default();
    };
    match parts.as_slice() {
        [start, literal, ..] if matches!(start.kind(), HirKind::Look(Look::Start)) => match literal.kind() {
            HirKind::Literal(literal) => literal.0.clone(),
            _ => Box::default(),
        },
        _ => Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(source: &str, ignore_case: bool, text: &str) -> bool {
        RegularExpression::parse(source, ignore_case).expect(source).is_match(text.as_bytes())
    }

    #[test]
    fn an_expression_matches_anywhere_unless_it_is_anchored() {
        let cases = [
            (r"\.php$", "/a.php", true),
            (r"\.php$", "/a.php/b", false),
            (r"^/blog/\d{4}-\d{2}", "/blog/2024-01/x", true),
            (r"^/blog/\d{4}-\d{2}", "/x/blog/2024-01", false),
            (r"^/(?:de|en)/", "/de/x", true),
            (r"^/\w+$", "/ä", false),
            ("ä+", "/ää", true),
            ("^/A", "/a", false),
            (r"^/[[:alpha:]]+\/x", "/ab/x", true),
            (r"^/[a&&b]$", "/&", true),
            (r"^/[+--]$", "/,", true),
            (r"^/[a[b]$", "/[", true),
            (r"^/[]*+]$", "/]", true),
            (r"^/a\<b\>$", "/a<b>", true),
            (r"\<b\>", "/b", false),
            (r"(?x) ^/[ ]$", "/ ", true),
        ];
        for (source, text, expected) in cases {
            assert_eq!(matches(source, false, text), expected, "{source} {text}");
        }
        assert!(matches("^eXample", true, "Example.com"));
    }

    #[test]
    fn a_feature_that_only_pcre_has_is_named() {
        let cases = [
            ("a(?=b)", "with look-around: (?=, (?!, (?<= or (?<!, which only PCRE has; write it without"),
            ("a(?!b)", "with look-around"),
            ("(?<!a)b", "with look-around"),
            (r"(a)\1", "with back-references, which only PCRE has"),
            ("/a(?R)?b", "with recursion: (?R), which only PCRE has"),
            ("(?>a)b", "with an atomic group: (?>, which only PCRE has"),
            ("a++b", "with the possessive quantifier \"++\", which howdah does not have; remove the last +"),
            ("a{2}+b", "with the possessive quantifier \"}+\""),
            ("a(", "is not a regular expression (unclosed group); correct it"),
            (r"\y", "is not a regular expression (unrecognized escape sequence); correct it"),
            ("(a{1000}){1000}", "is too big when it is compiled; shorten its repetitions"),
        ];
        for (source, expected) in cases {
            let problem = RegularExpression::parse(source, false).expect_err(source);
            assert!(problem.contains(expected), "{source}: {problem}");
        }
        for source in [r"a\++", "[*+]+", r"\*+", r"a\?+"] {
            assert!(RegularExpression::parse(source, false).is_ok(), "{source}");
        }
    }

    #[test]
    fn the_literal_after_the_anchor_is_known() {
        let cases = [
            ("^/blog/", "/blog/"),
            (r"^/a\.b/\d+", "/a.b/"),
            ("/blog", ""),
            ("^(?:a|b)", ""),
            ("^[/]x", "/x"),
            ("^a?b", ""),
            ("(?m)^a", ""),
        ];
        for (source, expected) in cases {
            let expression = RegularExpression::parse(source, false).expect(source);
            assert_eq!(expression.prefix(), expected.as_bytes(), "{source}");
        }
        assert_eq!(RegularExpression::parse("^/a", true).expect("expression").prefix(), b"");
    }
}
