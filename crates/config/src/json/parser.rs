//! JSON text to values.
//!
//! serde_json parses. Added are `//` and `/* */` comments and a byte-order mark, which are replaced by spaces, so that
//! serde_json's positions are those of the text; limits of size and depth; and advice in the errors. A key may appear
//! only once in an object. Every syntax error has a location in the text.
//!
//! Why not a parser that knows comments? jsonc-parser keeps the last of two equal keys or leaves the check to the caller,
//! accepts more than JSON unless each extension is switched off, and returns numbers as text; json5 accepts far more than
//! JSON. The code around them would be longer than [`blank_comments`].

use serde::de::Deserialize;

use crate::error::{Error, Location};
use crate::json::value::JsonValue;

/// The longest text that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// How deeply arrays and objects may be nested. serde_json rejects more by itself.
pub(crate) const MAX_DEPTH: usize = 127;
const BYTE_ORDER_MARK: char = '\u{feff}';

pub(crate) fn parse(text: &str) -> Result<JsonValue, Error> {
    check_size(text.len())?;
    let json = blank_comments(text)?;
    let mut deserializer = serde_json::Deserializer::from_str(&json);
    JsonValue::deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| syntax_error(text, &json, &error))
}

/// The text with spaces in place of comments and of the byte-order mark. Newlines stay.
fn blank_comments(text: &str) -> Result<String, Error> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    if let Some(after) = text.strip_prefix(BYTE_ORDER_MARK) {
        push_blank(&mut json, &text[..text.len() - after.len()]);
        rest = after;
    }
    while let Some(at) = rest.find(['"', '/']) {
        let (plain, special) = rest.split_at(at);
        json.push_str(plain);
        let length = if special.starts_with("//") {
            let length = special.find('\n').unwrap_or(special.len());
            push_blank(&mut json, &special[..length]);
            length
        } else if let Some(comment) = special.strip_prefix("/*") {
            let Some(end) = comment.find("*/") else {
                let location = Location::of(text, json.len());
                return Err(Error::syntax("the comment that begins here has no end; add */", location));
            };
            let length = "/*".len() + end + "*/".len();
            push_blank(&mut json, &special[..length]);
            length
        } else {
            let length = if special.starts_with('"') { string_length(special) } else { 1 };
            json.push_str(&special[..length]);
            length
        };
        rest = &special[length..];
    }
    json.push_str(rest);
    Ok(json)
}

fn push_blank(json: &mut String, comment: &str) {
    for c in comment.chars() {
        match c {
            '\n' => json.push('\n'),
            _ => json.extend(std::iter::repeat_n(' ', c.len_utf8())),
        }
    }
}

/// The length of the string literal at the beginning of the text, quotes included; the whole text if the literal has no
/// end.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn syntax_error(text: &str, json: &str, error: &serde_json::Error) -> Error {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => json.match_indices('\n').nth(line - 2).map_or(0, |(newline, _)| newline + 1),
    };
    let offset = if error.is_eof() { text.len() } else { line_start + error.column().saturating_sub(1) };
    Error::syntax(explain(json, error), Location::of(text, offset))
}

fn explain(json: &str, error: &serde_json::Error) -> String {
    if json.trim_ascii().is_empty() {
        return "there is no configuration; the smallest one is {}".into();
    }
    if error.is_eof() {
        return "the text ends too early; add the missing bracket, brace or quote".into();
    }
    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&suffix).unwrap_or(&message) {
        "trailing comma" => r#"there is a comma before "}" or "]"; remove it"#.into(),
        "trailing characters" => "there is text after the end of the configuration; remove it".into(),
        "key must be a string" => "a key must be written in double quotes".into(),
        "expected value" => {
            "expected a value: an object, an array, a text in quotes, a number, true, false or null".into()
        }
        "expected `,` or `}`" => r#"expected "," or "}"; add the missing comma or brace"#.into(),
        "expected `,` or `]`" => r#"expected "," or "]"; add the missing comma or bracket"#.into(),
        "expected `:`" => r#"expected ":" between a key and its value; add it"#.into(),
        "recursion limit exceeded" => too_deep(),
        other => other.to_owned(),
    }
}

/// Rejects texts that are too long.
pub(crate) fn check_size(bytes: usize) -> Result<(), Error> {
    if bytes > MAX_BYTES {
        let problem = format!("the configuration has {bytes} bytes; at most {MAX_BYTES} are accepted");
        return Err(Error::configuration(problem));
    }
    Ok(())
}

/// The error for a value that is nested deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep() -> String {
    format!("the configuration is nested too deeply; at most {MAX_DEPTH} levels are accepted")
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;

    fn error(text: &str) -> String {
        let error = parse(text).expect_err(text);
        assert_eq!(error.error, "Invalid JSON.");
        error.to_string()
    }

    #[test]
    fn comments_and_a_byte_order_mark_become_spaces() {
        let cases = [
            "\u{feff}{\"a\": 1}",
            "// ä\n{\"a\": 1} // \"",
            "/* \" // */{\"a\"/**/:/*\n*/1}/***/",
            "{\"a\": 1 //",
            "{ // */ \"b\": 2,\n \"a\": 1}",
        ];
        for text in cases {
            let complete = if text.ends_with("//") { format!("{text}\n}}") } else { text.to_owned() };
            let object = IndexMap::from([("a".to_owned(), JsonValue::Integer(1))]);
            assert_eq!(parse(&complete), Ok(JsonValue::Object(Box::new(object))), "{complete}");
            assert_eq!(blank_comments(&complete).map(|json| json.len()), Ok(complete.len()));
        }
    }

    #[test]
    fn a_string_may_look_like_a_comment() {
        for string in ["http://x/", "/* x */", r#"\"//"#, r"\\", "ä//ä"] {
            let text = format!("[\"{string}\", \"//\"]");
            assert_eq!(blank_comments(&text).as_ref(), Ok(&text));
        }
    }

    #[test]
    fn an_error_has_a_location_and_advice() {
        let cases = [
            ("", "line 1, column 1: there is no configuration; the smallest one is {}"),
            ("// nothing", "line 1, column 11: there is no configuration; the smallest one is {}"),
            ("{", "line 1, column 2: the text ends too early; add the missing bracket, brace or quote"),
            ("{\"a", "line 1, column 4: the text ends too early; add the missing bracket, brace or quote"),
            ("{\n /* ä */ x}", "line 2, column 10: a key must be written in double quotes"),
            ("{\"a\": 1,}", "line 1, column 9: there is a comma before \"}\" or \"]\"; remove it"),
            ("{} {}", "line 1, column 4: there is text after the end of the configuration; remove it"),
            ("{}\n/* x", "line 2, column 1: the comment that begins here has no end; add */"),
            ("{\"a\": 1,\n \"a\": 2}", "line 2, column 4: the key \"a\" appears twice in one object; remove one"),
            ("[1e999]", "line 1, column 6: number out of range"),
            ("\u{feff}\u{feff}{}", "line 1, column 1: expected a value: an object, an array"),
            ("{\"a\": x}", "line 1, column 7: expected a value: an object, an array"),
            ("{\"a\": 1 \"b\": 2}", "line 1, column 9: expected \",\" or \"}\"; add the missing comma or brace"),
            ("[1 2]", "line 1, column 4: expected \",\" or \"]\"; add the missing comma or bracket"),
            ("{\"a\" 1}", "line 1, column 6: expected \":\" between a key and its value; add it"),
        ];
        for (text, expected) in cases {
            assert!(error(text).starts_with(expected), "{text}: {}", error(text));
        }
    }

    #[test]
    fn texts_that_are_too_deep_or_too_long_are_rejected() {
        assert!(error(&"[".repeat(10_000)).contains("nested too deeply; at most 127 levels"));
        assert!(error(&"{\"a\":".repeat(10_000)).contains("nested too deeply"));
        assert!(parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).is_ok());
        let long = parse(&" ".repeat(10 << 20)).expect_err("too long");
        assert_eq!(long.to_string(), "the configuration has 10485760 bytes; at most 4194304 are accepted");
    }

    #[test]
    fn numbers_keep_their_kind() {
        let expected = [
            JsonValue::Integer(u64::MAX.into()),
            JsonValue::Integer(-1),
            JsonValue::Float(1.5),
            JsonValue::Float(1e20),
        ];
        assert_eq!(
            parse("[18446744073709551615, -1, 1.5, 100000000000000000000]"),
            Ok(JsonValue::Array(expected.into()))
        );
    }
}
