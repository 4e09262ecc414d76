//! The reason why a text or a request is rejected, by the control API or by a local check, and its position in the text.
//!
//!     Invalid JSON. shop.json:2:2: a key must be written in double quotes
//!       2 |  x}
//!         |  ^

mod locate;
mod source;

use howdah_config::{DocumentPath, Error};
use locate::locate;
use serde_json::{Value, json};

pub use source::SourceText;

/// The longest part of a line that is printed, in characters: a configuration may be one long line.
const EXCERPT_CHARACTERS: usize = 100;
/// The characters of a cut line before the error's position.
const EXCERPT_BEFORE: usize = 60;

/// The reason of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The kind of error: one of a few short texts.
    error: String,
    /// The reason, and what to do. Starts with the path of the wrong option, if there is one.
    detail: Option<String>,
    position: Option<TextPosition>,
}

/// A position in a text; both numbers start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextPosition {
    line: usize,
    /// In characters.
    column: usize,
}

// === impl Rejection ===

impl Rejection {
    /// An error without detail and position.
    pub fn new(error: String) -> Rejection {
        Rejection { error, detail: None, position: None }
    }

    /// From the body of an API response; `None` if the body has no error.
    pub fn of_json(body: &Value) -> Option<Rejection> {
        let number = |name: &str| usize::try_from(body.pointer(&format!("/location/{name}"))?.as_u64()?).ok();
        Some(Rejection {
            error: body.get("error")?.as_str()?.to_owned(),
            detail: body.get("detail").and_then(Value::as_str).map(str::to_owned),
            position: number("line").zip(number("column")).map(|(line, column)| TextPosition { line, column }),
        })
    }

    /// The message for the user, with the position in the text that was sent, if there is one.
    pub fn describe(&self, source: Option<&SourceText>) -> String {
        match source {
            Some(source) => self.describe_in(&source.name, &source.text(), &source.path, 0),
            None => self.describe_in("", "", &DocumentPath::default(), 0),
        }
    }

    /// Like [`Self::describe`], for a text that begins in its file after `lines_before` lines.
    pub fn describe_in(&self, file: &str, text: &str, path: &DocumentPath, lines_before: usize) -> String {
        let mut described = self.error.clone();
        let position = self.position.or_else(|| self.position_of_detail(text, path));
        if let Some(TextPosition { line, column }) = position.filter(|_| !file.is_empty()) {
            described.push_str(&format!(" {file}:{}:{column}:", line + lines_before));
        } else if let Some(TextPosition { line, column }) = position {
            described.push_str(&format!(" line {}, column {column}:", line + lines_before));
        }
        if let Some(detail) = &self.detail {
            described.push_str(&format!(" {detail}"));
        }
        if let Some(position) = position
            && let Some(line) = text.lines().nth(position.line - 1)
        {
            described.push_str(&excerpt(line, position, lines_before));
        }
        described
    }

    /// For a program: `error`, and, if they are known, `detail` and the `line` and `column` in the text that was sent.
    pub fn json_in(&self, text: &str) -> Value {
        let position = self.position.or_else(|| self.position_of_detail(text, &DocumentPath::default()));
        let (line, column) = position.map(|position| (position.line, position.column)).unzip();
        json!({ "error": self.error, "detail": self.detail, "line": line, "column": column })
    }

    /// The position of the option whose path starts the detail, if the text has it.
    fn position_of_detail(&self, text: &str, path: &DocumentPath) -> Option<TextPosition> {
        let (wrong, _) = self.detail.as_ref()?.split_once(": ")?;
        let wrong = DocumentPath::parse(wrong).ok()?;
        let below = wrong.segments().strip_prefix(path.segments())?;
        let offset = locate(text, below)?;
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1;
        Some(TextPosition { line: before.matches('\n').count() + 1, column })
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Rejection {
        let position = error.location.map(|location| TextPosition { line: location.line, column: location.column });
        Rejection { error: error.error, detail: Some(error.detail), position }
    }
}

/// The line, and a caret under the position.
fn excerpt(line: &str, position: TextPosition, lines_before: usize) -> String {
    let characters: Vec<char> = line.trim_start_matches('\u{feff}').chars().collect();
    let at = (position.column - 1).min(characters.len());
    let from = if characters.len() > EXCERPT_CHARACTERS { at.saturating_sub(EXCERPT_BEFORE) } else { 0 };
    let to = characters.len().min(from + EXCERPT_CHARACTERS);
    // Control characters of a file must not reach the terminal.
    let shown = characters[from..to].iter().map(|c| if c.is_control() && *c != '\t' { '\u{fffd}' } else { *c });
    let under = characters[from..at].iter().map(|c| if *c == '\t' { '\t' } else { ' ' });
    let number = (position.line + lines_before).to_string();
    let blank = " ".repeat(number.len());
    format!("\n  {number} | {}\n  {blank} | {}^", shown.collect::<String>(), under.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    fn described(text: &str) -> String {
        let rejection = Rejection::from(Configuration::parse(text).unwrap_err());
        rejection.describe_in("f", text, &DocumentPath::default(), 0)
    }

    #[test]
    fn a_syntax_error_is_shown_in_its_line() {
        assert_eq!(
            described("{\"a\": 1,\n\t x}"),
            "Invalid JSON. f:2:3: a key must be written in double quotes\n  2 | \t x}\n    | \t ^"
        );
        assert!(described("{").ends_with("\n  1 | {\n    |  ^"), "{}", described("{"));
        assert_eq!(described(""), "Invalid JSON. f:1:1: there is no configuration; the smallest one is {}");
    }

    #[test]
    fn a_wrong_option_is_shown_in_its_line() {
        let shown = described("{\"listeners\": {}, // a comment\n  \"rutes\": []}");
        assert!(shown.starts_with("Invalid configuration. f:2:3: rutes: there is no such option"), "{shown}");
        assert!(shown.ends_with("\n  2 |   \"rutes\": []}\n    |   ^"), "{shown}");
    }

    #[test]
    fn a_program_gets_the_position_as_numbers() {
        let text = "{\"listeners\": {}, // a comment\n  \"rutes\": []}";
        let value = Rejection::from(Configuration::parse(text).unwrap_err()).json_in(text);
        assert_eq!(
            (&value["error"], &value["line"], &value["column"]),
            (&json!("Invalid configuration."), &json!(2), &json!(3))
        );
        assert!(value["detail"].as_str().unwrap().starts_with("rutes: there is no such option"));
        assert_eq!(Rejection::new("E.".to_owned()).json_in("")["line"], Value::Null);
    }

    #[test]
    fn a_part_is_shown_if_the_error_is_in_it() {
        let rejection =
            Rejection { detail: Some("listeners/*:80/pass: wrong".to_owned()), ..Rejection::new("E.".to_owned()) };
        let describe = |path: &str| rejection.describe_in("f", "{\"pass\": 1}", &DocumentPath::parse(path).unwrap(), 3);
        assert_eq!(describe("listeners/*:80"), "E. f:4:2: listeners/*:80/pass: wrong\n  4 | {\"pass\": 1}\n    |  ^");
        assert_eq!(describe("routes"), "E. listeners/*:80/pass: wrong");
    }

    #[test]
    fn a_long_line_is_cut() {
        let line = format!("[{}\u{1b}x]", "1,".repeat(10_000));
        let shown = described(&line);
        assert!(shown.lines().all(|line| line.chars().count() < 160), "{shown}");
        assert!(!shown.contains('\u{1b}') && shown.lines().last().unwrap().ends_with('^'));
    }
}
