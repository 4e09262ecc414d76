//! Text of an application's clients, made safe for a terminal and a log line: it cannot move the cursor, begin a line or change
//! the reading order.

use serde_json::Value;

/// The text, with each control character and direction mark as an escape sequence such as `\u{1b}`.
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

/// A string member of a JSON object, made safe for a terminal; empty if it does not exist.
pub fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(plain).unwrap_or_default()
}

/// A number of bytes with its unit, for example `12.3 MiB`.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{} KiB", number >> 10),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("/a?b=ü\x1b[2J\r\n\u{9b}31m\u{202e}x"), r"/a?b=ü\u{1b}[2J\r\n\u{9b}31m\u{202e}x");
        assert_eq!((bytes(5), bytes(2048), bytes(5 << 20)), ("5 B".into(), "2 KiB".into(), "5.0 MiB".into()));
    }
}
