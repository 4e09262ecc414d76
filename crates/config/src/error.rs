//! Errors in a configuration: where the problem is, what it is, and what to do.
//!
//! Every part of the configuration that a message repeats goes through [`quoted`], so that a message is one line of
//! bounded length, whatever the configuration contains.

use std::fmt;

/// The short texts of NGINX Unit's API, on which its clients depend.
const INVALID_JSON: &str = "Invalid JSON.";
const INVALID_CONFIGURATION: &str = "Invalid configuration.";

/// The longest part of a configuration that a message repeats, in characters.
const QUOTE_CHARS: usize = 100;

/// Longer names get no suggestion, in bytes: the comparison takes quadratic time.
const SUGGESTION_BYTES: usize = 40;

/// The first problem in a configuration. It is displayed on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind, as in NGINX Unit's API: `Invalid JSON.`, `Invalid configuration.`
    pub error: String,
    /// The path in the configuration (if the text is JSON), the problem, and what to do.
    pub detail: String,
    /// The location in the text, if the text is not JSON.
    pub location: Option<Location>,
}

/// A location in the text of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// In bytes, from 0.
    pub offset: usize,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

// === impl Error ===

impl Error {
    /// An error in a configuration that is JSON. `detail` begins with the path of the option, unless the problem is
    /// in the whole configuration.
    pub(crate) fn configuration(detail: impl Into<String>) -> Self {
        Self { error: INVALID_CONFIGURATION.into(), detail: detail.into(), location: None }
    }

    /// An error in a text that is not JSON.
    /// An error in a text that is not JSON.
    pub(crate) fn syntax(detail: impl Into<String>, location: Location) -> Self {
        Self { error: INVALID_JSON.into(), detail: detail.into(), location: Some(location) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Location { line, column, .. }) = self.location {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}

// === impl Location ===

impl Location {
    /// The location of the byte at `offset`, or of the end of the text if that comes first.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            offset,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1,
        }
    }
}

/// The text in double quotes, escaped onto one line and shortened.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// `; did you mean "…"?`, or nothing if no candidate is similar.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    if name.len() > SUGGESTION_BYTES {
        return String::new();
    }
    let folded = name.to_lowercase();
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= SUGGESTION_BYTES)
        .map(|candidate| (strsim::osa_distance(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| format!("; did you mean {}?", quoted(candidate)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested_and_a_different_one_is_not() {
        let names = ["listeners", "routes", "applications", "settings", "access_log"];
        let cases = [
            ("listener", r#"; did you mean "listeners"?"#),
            ("Routes", r#"; did you mean "routes"?"#),
            ("aplications", r#"; did you mean "applications"?"#),
            ("acess-log", r#"; did you mean "access_log"?"#),
            ("frobnicate", ""),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(did_you_mean(name, names), expected, "{name}");
        }
        assert_eq!(did_you_mean(&"x".repeat(1 << 20), names), "");
    }

    #[test]
    fn a_quoted_text_is_one_short_line() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        assert_eq!(quoted(&"ä".repeat(100_000)).chars().count(), QUOTE_CHARS + 5);
    }

    #[test]
    fn a_location_counts_lines_and_characters_from_one() {
        let text = "\u{feff}{\nä: 1}";
        let cases = [(0, 1, 1), (3, 1, 1), (4, 1, 2), (5, 2, 1), (7, 2, 2), (6, 2, 1), (999, 2, 6)];
        for (offset, line, column) in cases {
            let location = Location::of(text, offset);
            assert_eq!((location.line, location.column), (line, column), "{offset}");
        }
    }
}
