//! What is wrong with a text, and where: the answer of the control API, or of a check, for a person.
//!
//!     Invalid JSON. shop.json:2:2: a key must be written in double quotes
//!       2 |  x}
//!         |  ^

use crate::client::place;
use crate::client::source::Source;
use howdah_config::{DocumentPath, Error};
use serde_json::Value;

/// How much of a line is shown, in characters: a configuration may be one line.
const SHOWN: usize = 100;
/// How much of it at least before the place.
const SHOWN_BEFORE: usize = 60;

/// Why howdah does not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One of a few short texts.
    error: String,
    /// What is wrong, and what to do; begins with a path if it is about a part of the configuration.
    detail: Option<String>,
    place: Option<Place>,
}

/// A place in a text; both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    /// In characters.
    column: usize,
}

// === impl Problem ===

impl Problem {
    /// A text alone.
    pub fn new(error: String) -> Problem {
        Problem { error, detail: None, place: None }
    }

    /// The body of an answer; `None` if that is no refusal.
    pub fn of_json(body: &Value) -> Option<Problem> {
        let number = |name: &str| usize::try_from(body.pointer(&format!("/location/{name}"))?.as_u64()?).ok();
        Some(Problem {
            error: body.get("error")?.as_str()?.to_owned(),
            detail: body.get("detail").and_then(Value::as_str).map(str::to_owned),
            place: number("line").zip(number("column")).map(|(line, column)| Place { line, column }),
        })
    }

    /// In words, with the place in the text that was sent, if there is one.
    pub fn describe(&self, source: Option<&Source>) -> String {
        match source {
            Some(source) => self.describe_in(&source.name, &source.text(), &source.path, 0),
            None => self.describe_in("", "", &DocumentPath::default(), 0),
        }
    }

    /// As [`Self::describe`]; the text is a part of the file, after this many lines of it.
    pub fn describe_in(&self, file: &str, text: &str, path: &DocumentPath, lines_before: usize) -> String {
        let mut described = self.error.clone();
        let place = self.place.or_else(|| self.place_of_detail(text, path));
        if let Some(Place { line, column }) = place.filter(|_| !file.is_empty()) {
            described.push_str(&format!(" {file}:{}:{column}:", line + lines_before));
        } else if let Some(Place { line, column }) = place {
            described.push_str(&format!(" line {}, column {column}:", line + lines_before));
        }
        if let Some(detail) = &self.detail {
            described.push_str(&format!(" {detail}"));
        }
        if let Some(place) = place
            && let Some(line) = text.lines().nth(place.line - 1)
        {
            described.push_str(&excerpt(line, place, lines_before));
        }
        described
    }

    /// The detail begins with the path of the option, which may be in the text.
    fn place_of_detail(&self, text: &str, path: &DocumentPath) -> Option<Place> {
        let (wrong, _) = self.detail.as_ref()?.split_once(": ")?;
        let wrong = DocumentPath::parse(wrong).ok()?;
        let below = wrong.segments().strip_prefix(path.segments())?;
        let offset = place::locate(text, below)?;
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].trim_start_matches('\u{feff}').chars().count() + 1;
        Some(Place { line: before.matches('\n').count() + 1, column })
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let place = error.location.map(|location| Place { line: location.line, column: location.column });
        Problem { error: error.error, detail: Some(error.detail), place }
    }
}

/// The line, and a caret under the place.
fn excerpt(line: &str, place: Place, lines_before: usize) -> String {
    let characters: Vec<char> = line.trim_start_matches('\u{feff}').chars().collect();
    let at = (place.column - 1).min(characters.len());
    let from = if characters.len() > SHOWN { at.saturating_sub(SHOWN_BEFORE) } else { 0 };
    let to = characters.len().min(from + SHOWN);
    // A terminal must not be told what to do by a file.
    let shown = characters[from..to].iter().map(|c| if c.is_control() && *c != '\t' { '\u{fffd}' } else { *c });
    let under = characters[from..at].iter().map(|c| if *c == '\t' { '\t' } else { ' ' });
    let number = (place.line + lines_before).to_string();
    let blank = " ".repeat(number.len());
    format!("\n  {number} | {}\n  {blank} | {}^", shown.collect::<String>(), under.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    fn described(text: &str) -> String {
        let problem = Problem::from(Configuration::parse(text).unwrap_err());
        problem.describe_in("f", text, &DocumentPath::default(), 0)
    }

    #[test]
    fn what_is_not_json_is_shown_in_its_line() {
        assert_eq!(
            described("{\"a\": 1,\n\t x}"),
            "Invalid JSON. f:2:3: a key must be written in double quotes\n  2 | \t x}\n    | \t ^"
        );
        assert!(described("{").ends_with("\n  1 | {\n    |  ^"), "{}", described("{"));
        assert_eq!(described(""), "Invalid JSON. f:1:1: there is no configuration; the smallest one is {}");
    }

    #[test]
    fn an_option_is_shown_in_its_line() {
        let shown = described("{\"listeners\": {}, // a comment\n  \"rutes\": []}");
        assert!(shown.starts_with("Invalid configuration. f:2:3: rutes: there is no such option"), "{shown}");
        assert!(shown.ends_with("\n  2 |   \"rutes\": []}\n    |   ^"), "{shown}");
    }

    #[test]
    fn a_part_is_shown_if_the_problem_is_in_it() {
        let problem =
            Problem { detail: Some("listeners/*:80/pass: wrong".to_owned()), ..Problem::new("E.".to_owned()) };
        let describe = |path: &str| problem.describe_in("f", "{\"pass\": 1}", &DocumentPath::parse(path).unwrap(), 3);
        assert_eq!(describe("listeners/*:80"), "E. f:4:2: listeners/*:80/pass: wrong\n  4 | {\"pass\": 1}\n    |  ^");
        assert_eq!(describe("routes"), "E. listeners/*:80/pass: wrong");
    }

    #[test]
    fn of_a_long_line_a_part_is_shown() {
        let line = format!("[{}\u{1b}x]", "1,".repeat(10_000));
        let shown = described(&line);
        assert!(shown.lines().all(|line| line.chars().count() < 160), "{shown}");
        assert!(!shown.contains('\u{1b}') && shown.lines().last().unwrap().ends_with('^'));
    }
}
