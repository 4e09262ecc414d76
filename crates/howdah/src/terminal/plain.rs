//! Cells of a table, and other text on a terminal. Text of strangers is made [safe](plain) for it.

use serde_json::Value;

use howdah_supervisor::plain_text::{in_lines, plain_json};
pub use howdah_supervisor::plain_text::{plain, plain_output};

/// A string member of a JSON object, made safe for a terminal; empty if it does not exist.
pub fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(plain).unwrap_or_default()
}

/// JSON of any number of lines, made safe for a terminal: its strings have escape sequences, and the values stay the same.
pub fn json_lines(json: &str) -> String {
    // In a valid document, a line feed and a tab are white space: they are in no string.
    in_lines(json, |text| plain_json(text.to_owned()))
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
    use serde_json::json;

    #[test]
    fn json_stays_the_same_value_without_control_characters_and_marks() {
        let value = json!({ "url\u{9b}": ["/a\u{1b}[2J\u{7f}\u{85}\u{9b}31m\u{202e}x\n\tü", { "b": "\u{feff}" }] });
        for text in [format!("{value}\n"), format!("{value:#}\n"), format!("{value:#}\n").replace("  ", "\t")] {
            let printed = json_lines(&text);
            let is_hidden = |c: char| c != '\n' && c != '\t' && plain(&c.to_string()) != c.to_string();
            assert!(!printed.contains(is_hidden), "{printed:?}");
            assert_eq!(printed.lines().count(), text.lines().count());
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), value);
        }
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!((bytes(5), bytes(2048), bytes(5 << 20)), ("5 B".into(), "2 KiB".into(), "5.0 MiB".into()));
    }
}
