//! Text of strangers (clients, scripts, other processes), made safe for a terminal and a log line: it cannot move the
//! cursor, begin a line, change the reading order, or look like a field of a log line.

use std::borrow::Cow;

/// The beginning of all lines of a message but the first: a line of the log begins with its time.
const CONTINUATION: &str = "\n    ";

/// The longest text of a stranger in a log line, in bytes.
const LONGEST: usize = 2048;

/// The beginning of a text: a log line has at most this much of a stranger's text, so that its clients do not fill the disk.
pub fn short(text: &str) -> Cow<'_, str> {
    cut(text, LONGEST)
}

/// The text, or its beginning with `...` after it if it has more than this number of bytes.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    format!("{}...", beginning(text, most)).into()
}

/// The longest beginning of a text that has at most this number of bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// The text on one line, with each control character and direction mark as an escape sequence such as `\u{1b}`.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => plain.extend(c.escape_default()),
            c if is_mark(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
    }
    plain
}

/// Whether this is a mark of the writing direction, a line separator, or the byte order mark: invisible, but no control character.
pub fn is_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A text in JSON with escape sequences for control characters and marks, which JSON allows in strings: some readers of lines take
/// U+0085 and U+2028 for the end of one.
pub fn plain_json(json: String) -> String {
    let is_hidden = |c: char| c.is_control() || is_mark(c);
    if !json.contains(is_hidden) {
        return json;
    }
    let mut plain = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // All of them are in the basic plane.
            c if is_hidden(c) => plain.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => plain.push(c),
        }
    }
    plain
}

/// The beginning of a text on one line, as [`plain`] has it. An escape sequence is longer than its character.
pub fn plain_and_short(text: &str) -> String {
    let plain = plain(&short(text));
    match short(&plain) {
        Cow::Borrowed(_) => plain,
        Cow::Owned(short) => short,
    }
}

/// The text with its lines and tabs, for a message of several lines: all lines but the first are indented, so that none
/// looks like another message.
pub fn plain_lines(text: &str) -> String {
    let text = text.strip_suffix('\r').unwrap_or(text).replace("\r\n", "\n");
    in_lines(&text, plain).replace('\n', CONTINUATION)
}

/// The text with its lines and tabs, for a terminal.
pub fn plain_output(text: &str) -> String {
    in_lines(text, plain)
}

/// The text with `escape` applied to everything but line feeds and tabs.
pub fn in_lines(text: &str, escape: impl Fn(&str) -> String) -> String {
    let line = |line: &str| line.split('\t').map(&escape).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The text of a message without anything that looks like a field with a text: `client="` becomes `client=\"`. Programs that
/// look for a client in the log find the line's own only. Messages of howdah itself never have a double quote behind `=`.
pub fn without_fields(message: &str) -> Cow<'_, str> {
    if message.contains("=\"") { message.replace("=\"", "=\\\"").into() } else { message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_hidden_characters() {
        let json = plain_json("{\"a\": \"x\u{85}\u{9b}\u{2028}\u{202e}ü\"}".to_owned());
        assert_eq!(json, r#"{"a": "x\u0085\u009b\u2028\u202eü"}"#);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("/a?b=ü\x1b[2J\r\n\u{9b}31m\u{202e}x"), r"/a?b=ü\u{1b}[2J\r\n\u{9b}31m\u{202e}x");
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(short("/a"), "/a");
        let long = "ü".repeat(LONGEST);
        let cut = short(&long);
        assert_eq!((cut.len(), cut.ends_with("ü...")), (LONGEST + 3, true));
        assert_eq!([0, 1, 2, 3, 4, 9].map(|most| beginning("aüb", most)), ["", "a", "a", "aü", "aüb", "aüb"]);
    }

    #[test]
    fn a_message_has_no_fields() {
        assert_eq!(without_fields(r#"the application "shop" has a=1"#), r#"the application "shop" has a=1"#);
        assert_eq!(without_fields(r#"a" b="1" c=\"2" d==""#), r#"a" b=\"1" c=\"2" d==\""#);
    }

    #[test]
    fn the_further_lines_of_a_message_are_indented() {
        let text = "one\r\n2026-01-01T00:00:00Z  WARN two\n\tthree\r\x1b[31m\u{2028}\n";
        let expected = "one\n    2026-01-01T00:00:00Z  WARN two\n    \tthree\\r\\u{1b}[31m\\u{2028}\n    ";
        assert_eq!(plain_lines(text), expected);
    }

    #[test]
    fn lines_and_tabs_of_a_text_for_a_terminal_stay() {
        let text = "skipped: nginx-fpm: wrong\n    PHP\tx\u{1b}]52;c;eA==\x07\r\u{9b}2J\u{202e}\n";
        let expected = "skipped: nginx-fpm: wrong\n    PHP\tx\\u{1b}]52;c;eA==\\u{7}\\r\\u{9b}2J\\u{202e}\n";
        assert_eq!(plain_output(text), expected);
    }
}
