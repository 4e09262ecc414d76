//! JSON text to values.
//!
//! serde_json parses. Added are `//` and `/* */` comments and a byte-order mark, which are replaced by spaces, so that
//! serde_json's positions are those of the text (a comment may have bytes that are not UTF-8, as in a file that was
//! written in Latin-1); limits of size and depth; and advice in the errors. A key may appear
//! only once in an object. Every syntax error has a location in the text.
//!
//! Why not a parser that knows comments? jsonc-parser keeps the last of two equal keys or leaves the check to the caller,
//! accepts more than JSON unless each extension is switched off, and returns numbers as text; json5 accepts far more than
//! JSON. The code around them would be longer than [`blank_comments`].

use memchr::{memchr, memchr2, memmem};
use serde::de::Deserialize;

use crate::error::{Error, Location};
use crate::json::value::JsonValue;

/// The longest text that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// How deeply arrays and objects may be nested. serde_json rejects more by itself.
pub(crate) const MAX_DEPTH: usize = 127;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub(crate) fn parse(text: &str) -> Result<JsonValue, Error> {
    parse_bytes(text.as_bytes())
}

/// Parses a text that may have bytes besides UTF-8 in its comments.
pub(crate) fn parse_bytes(text: &[u8]) -> Result<JsonValue, Error> {
    check_size(text.len())?;
    let json = String::from_utf8(blank_comments(text)?).map_err(|error| {
        let problem = "the text has a byte that is not UTF-8; save the configuration as UTF-8";
        Error::syntax(problem, location(text, error.utf8_error().valid_up_to()))
    })?;
    let mut deserializer = serde_json::Deserializer::from_str(&json);
    JsonValue::deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| syntax_error(text, &json, &error))
}

/// The text with spaces in place of comments and of the byte-order mark. Newlines stay.
fn blank_comments(text: &[u8]) -> Result<Vec<u8>, Error> {
    let mut json = Vec::with_capacity(text.len());
    let mut rest = text;
    if let Some(after) = text.strip_prefix(BYTE_ORDER_MARK) {
        push_blank(&mut json, BYTE_ORDER_MARK);
        rest = after;
    }
    while let Some(at) = memchr2(b'"', b'/', rest) {
        let (plain, special) = rest.split_at(at);
        json.extend_from_slice(plain);
        let length = if special.starts_with(b"//") {
            let length = memchr(b'\n', special).unwrap_or(special.len());
            push_blank(&mut json, &special[..length]);
            length
        } else if let Some(comment) = special.strip_prefix(b"/*") {
            let Some(end) = memmem::find(comment, b"*/") else {
                let problem = "the comment that begins here has no end; add */";
                return Err(Error::syntax(problem, location(text, json.len())));
            };
            let length = "/*".len() + end + "*/".len();
            push_blank(&mut json, &special[..length]);
            length
        } else {
            let length = if special.starts_with(b"\"") { string_length(special) } else { 1 };
            json.extend_from_slice(&special[..length]);
            length
        };
        rest = &special[length..];
    }
    json.extend_from_slice(rest);
    Ok(json)
}

fn push_blank(json: &mut Vec<u8>, comment: &[u8]) {
    json.extend(comment.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
}

/// The length of the string literal at the beginning of the text, quotes included; the whole text if the literal has no
/// end.
fn string_length(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The location of the byte at `offset`.
fn location(text: &[u8], offset: usize) -> Location {
    let before = String::from_utf8_lossy(&text[..offset.min(text.len())]);
    Location { offset, ..Location::of(&before, before.len()) }
}

fn syntax_error(text: &[u8], json: &str, error: &serde_json::Error) -> Error {
    let line_start = match error.line() {
        0 | 1 => 0,
        line => json.match_indices('\n').nth(line - 2).map_or(0, |(newline, _)| newline + 1),
    };
    let offset = if error.is_eof() { text.len() } else { line_start + error.column().saturating_sub(1) };
    Error::syntax(explain(json, error), location(text, offset))
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
            assert_eq!(blank_comments(complete.as_bytes()).map(|json| json.len()), Ok(complete.len()));
        }
    }

    #[test]
    fn a_string_may_look_like_a_comment() {
        for string in ["http://x/", "/* x */", r#"\"//"#, r"\\", "ä//ä"] {
            let text = format!("[\"{string}\", \"//\"]");
            assert_eq!(blank_comments(text.as_bytes()), Ok(text.into_bytes()));
        }
    }

    #[test]
    fn a_comment_may_have_bytes_that_are_not_utf_8() {
        let text = b"// Gr\xfc\xdfe\n{\"a\": /* \xff */ 1}";
        assert_eq!(parse_bytes(text), parse("{\"a\": 1}"));
        let error = parse_bytes(b"// \xff\n{\"a\": \"\xff\"}").expect_err("a text that is not UTF-8");
        assert!(error.to_string().starts_with("line 2, column 8: the text has a byte that is not UTF-8"), "{error}");
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
