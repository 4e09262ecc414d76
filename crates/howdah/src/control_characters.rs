//! Control characters in log lines. Texts of clients and scripts may be in any field: a line break would begin a line that
//! looks like one of howdah's, and an escape sequence would control the terminal of its reader.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether line breaks are escaped, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineBreaks {
    Escaped,
    /// The text is howdah's own, and may quote the output of a process.
    Kept,
}

/// The text with its control characters as in a literal of Rust: `\n`, `\u{1b}`.
pub fn escaped(text: &str, line_breaks: LineBreaks) -> Cow<'_, str> {
    let must_escape = |c: char| match c {
        '\n' => line_breaks == LineBreaks::Escaped,
        // Separators of lines and paragraphs, and characters that reverse the direction of a text.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !text.contains(must_escape) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match must_escape(c) {
            true => drop(write!(escaped, "{}", c.escape_debug())),
            false => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let cases = [
            ("/srv/é \"x\" \\", "/srv/é \"x\" \\"),
            ("a\nb\tc\r\0", "a\\nb\\tc\\r\\0"),
            ("\u{1b}[31m\u{9b}\u{202e}", "\\u{1b}[31m\\u{9b}\\u{202e}"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text, LineBreaks::Escaped), expected);
        }
        assert_eq!(escaped("a\nb\u{1b}", LineBreaks::Kept), "a\nb\\u{1b}");
    }
}
