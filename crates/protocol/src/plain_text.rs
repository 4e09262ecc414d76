//! Text of strangers (clients, scripts, other processes), made safe for a terminal and a log line: it cannot move the
//! cursor, begin a line or change the reading order.

/// The beginning of all lines of a message but the first: a line of the log begins with its time.
const CONTINUATION: &str = "\n    ";

/// The text on one line, with each control character and direction mark as an escape sequence such as `\u{1b}`.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => plain.extend(c.escape_default()),
            // Marks of the writing direction, line separators, and the byte order mark.
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                plain.extend(c.escape_unicode());
            }
            c => plain.push(c),
        }
    }
    plain
}

/// The text with its lines and tabs, for a message of several lines: all lines but the first are indented, so that none
/// looks like another message.
pub fn plain_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    let lines = text.split('\n').map(|text| line(text.strip_suffix('\r').unwrap_or(text)));
    lines.collect::<Vec<_>>().join(CONTINUATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("/a?b=ü\x1b[2J\r\n\u{9b}31m\u{202e}x"), r"/a?b=ü\u{1b}[2J\r\n\u{9b}31m\u{202e}x");
    }

    #[test]
    fn the_further_lines_of_a_message_are_indented() {
        let text = "one\r\n2026-01-01T00:00:00Z  WARN two\n\tthree\r\x1b[31m\u{2028}\n";
        let expected = "one\n    2026-01-01T00:00:00Z  WARN two\n    \tthree\\r\\u{1b}[31m\\u{2028}\n    ";
        assert_eq!(plain_lines(text), expected);
    }
}
