//! Cells of a table, and other text on a terminal. Text of strangers is made [safe](plain) for it.

use serde_json::Value;

pub use howdah_supervisor::plain_text::plain;

/// A string member of a JSON object, made safe for a terminal; empty if it does not exist.
pub fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(plain).unwrap_or_default()
}

/// Several lines, each made safe for a terminal. Tabs stay.
pub fn plain_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
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
    fn lines_stay_lines_without_control_characters() {
        assert_eq!(plain_lines("a\u{1b}[2J\n\tb\n"), "a\\u{1b}[2J\n\tb\n");
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!((bytes(5), bytes(2048), bytes(5 << 20)), ("5 B".into(), "2 KiB".into(), "5.0 MiB".into()));
    }
}
