//! JSON values to text: compact, to be stored and hashed, and pretty, as NGINX Unit's API answers.
//!
//! Parsing the text gives the same value again, numbers included. Members keep their order.

use std::fmt::Write;

use crate::json::value::JsonValue;

/// Prints a value without any space.
pub(crate) fn compact(value: &JsonValue) -> String {
    let mut text = String::new();
    push_compact(&mut text, value);
    text
}

/// Prints a value as NGINX Unit's control API does: one tab for each level, CRLF after each line, an empty line after a
/// member that is a non-empty object or array. There is no CRLF at the end.
pub(crate) fn pretty(value: &JsonValue) -> String {
    let mut text = String::new();
    push_pretty(&mut text, value, 0);
    text
}

fn push_compact(text: &mut String, value: &JsonValue) {
    match value {
        JsonValue::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_compact(text, element);
            }
            text.push(']');
        }
        JsonValue::Object(members) => {
            text.push('{');
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_string(text, key);
                text.push(':');
                push_compact(text, member);
            }
            text.push('}');
        }
        scalar => push_scalar(text, scalar),
    }
}

fn push_pretty(text: &mut String, value: &JsonValue, level: usize) {
    match value {
        JsonValue::Array(elements) if !elements.is_empty() => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_line(text, level + 1);
                push_pretty(text, element, level + 1);
            }
            push_line(text, level);
            text.push(']');
        }
        JsonValue::Object(members) if !members.is_empty() => {
            text.push('{');
            let mut after_block = false;
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                if after_block {
                    text.push_str("\r\n");
                }
                push_line(text, level + 1);
                push_string(text, key);
                text.push_str(": ");
                push_pretty(text, member, level + 1);
                after_block = is_block(member);
            }
            push_line(text, level);
            text.push('}');
        }
        other => push_compact(text, other),
    }
}

fn push_line(text: &mut String, level: usize) {
    text.push_str("\r\n");
    text.extend(std::iter::repeat_n('\t', level));
}

/// Whether the value takes more than one line.
fn is_block(value: &JsonValue) -> bool {
    match value {
        JsonValue::Array(elements) => !elements.is_empty(),
        JsonValue::Object(members) => !members.is_empty(),
        _ => false,
    }
}

fn push_scalar(text: &mut String, value: &JsonValue) {
    // Writing to a string cannot fail.
    let _ = match value {
        JsonValue::Bool(boolean) => write!(text, "{boolean}"),
        JsonValue::Integer(number) => write!(text, "{number}"),
        // Rust's Debug form of a finite number is JSON, and the shortest text that parses to the same number. Numbers
        // from JSON text are finite.
        JsonValue::Float(number) => write!(text, "{number:?}"),
        JsonValue::String(string) => {
            push_string(text, string);
            Ok(())
        }
        JsonValue::Null | JsonValue::Array(_) | JsonValue::Object(_) => write!(text, "null"),
    };
}

/// Escapes only what JSON requires: slashes, DEL and characters beyond ASCII stay.
fn push_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            control if control < ' ' => {
                let _ = write!(text, "\\u{:04X}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn pretty_text_is_laid_out_as_by_unit() {
        let value = json::parse(
            r#"{"listeners": {"*:80": {"pass": "routes"}}, "empty": {}, "none": [], "list": [[1], {"a": null}, []], "last": true}"#,
        )
        .expect("JSON");
        let expected = [
            "{",
            "\t\"listeners\": {",
            "\t\t\"*:80\": {",
            "\t\t\t\"pass\": \"routes\"",
            "\t\t}",
            "\t},",
            "",
            "\t\"empty\": {},",
            "\t\"none\": [],",
            "\t\"list\": [",
            "\t\t[",
            "\t\t\t1",
            "\t\t],",
            "\t\t{",
            "\t\t\t\"a\": null",
            "\t\t},",
            "\t\t[]",
            "\t],",
            "",
            "\t\"last\": true",
            "}",
        ];
        assert_eq!(pretty(&value), expected.join("\r\n"));
    }

    #[test]
    fn compact_text_has_no_space_and_escapes_what_it_must() {
        let cases = [
            (r#"{ "b" : [ 1 , -2 ] , "a" : { } }"#, r#"{"b":[1,-2],"a":{}}"#),
            (r#""\/\u00e4\u007f\"\\\n\r\t\b\f\u0000\u001f""#, "\"/ä\u{7f}\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001F\""),
            ("null", "null"),
            ("[true, false]", "[true,false]"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.0", "1.0"),
            ("-0", "-0.0"),
            ("0.1", "0.1"),
            ("1e400", ""),
            ("1e300", "1e300"),
            ("5e-324", "5e-324"),
            ("100000000000000000000", "1e20"),
        ];
        for (json, expected) in cases {
            match json::parse(json) {
                Ok(value) => assert_eq!(compact(&value), expected, "{json}"),
                Err(error) => assert_eq!(expected, "", "{json}: {error}"),
            }
        }
    }
}
