//! Prints a report every second until Ctrl-C. Clears a terminal first, and cuts the report to the terminal's size.

use crate::terminal::output;
use crate::terminal::plain::json_lines;
use rustix::termios::{Winsize, tcgetwinsize};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// One report.
pub enum Report {
    /// Lines for a person.
    Text(String),
    /// One line for a script.
    Json(Value),
}

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);
/// The escape sequence that clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints a new report every second. Returns when standard output is closed.
///
/// # Errors
/// The first error of `report`.
pub fn watch(mut report: impl FnMut() -> Result<Report, String>) -> Result<(), String> {
    loop {
        let printed = match report()? {
            Report::Json(value) => json_line(&value),
            Report::Text(text) if io::stdout().is_terminal() => match tcgetwinsize(io::stdout()) {
                Ok(size) => format!("{CLEAR}{}", fitting(&text, size)),
                Err(_) => format!("{CLEAR}{text}"),
            },
            Report::Text(text) => format!("{text}\n"),
        };
        if output::try_print(&printed).is_err() {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

fn json_line(value: &Value) -> String {
    json_lines(&format!("{value}\n"))
}

/// The part of a text that fits on a terminal of this size. A terminal of unknown size reports 0.
fn fitting(text: &str, size: Winsize) -> String {
    let room = |least: u16, cells: u16| if cells == 0 { usize::MAX } else { usize::from(cells.max(least)) };
    // The last row is for the cursor.
    let lines = text.lines().take(room(2, size.ws_row) - 1);
    lines.map(|line| line.chars().take(room(20, size.ws_col)).chain(['\n']).collect::<String>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_control_characters() {
        let value = Value::from("\u{9b}31m\u{202e}x");
        assert_eq!(json_line(&value), "\"\\u009b31m\\u202ex\"\n");
    }

    fn fitted(text: &str, columns: u16, rows: u16) -> Vec<usize> {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        fitting(text, size).lines().map(str::len).collect()
    }

    #[test]
    fn the_text_is_cut_to_the_terminal() {
        let text = format!("{0}\n{0}\nshort\n", "x".repeat(50));
        assert_eq!(fitted(&text, 30, 3), [30, 30]);
        assert_eq!(fitted(&text, 80, 24), [50, 50, 5]);
        assert_eq!(fitted(&text, 1, 1), [20]);
        assert_eq!(fitted(&text, 0, 0), [50, 50, 5]);
    }
}
