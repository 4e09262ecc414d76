//! What is printed anew each second, until Ctrl-C. A terminal is cleared first, and shown as much as it has room for.

use crate::output;
use rustix::termios::{Winsize, tcgetwinsize};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// What a look has found.
pub enum Found {
    /// For a person.
    Text(String),
    /// For a script: one line.
    Json(Value),
}

/// How often it is looked.
const PERIOD: Duration = Duration::from_secs(1);
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints what each look finds; returns only if there is nothing to see any more, or nobody reads it.
///
/// # Errors
/// Those of the look.
pub fn watch(mut look: impl FnMut() -> Result<Found, String>) -> Result<(), String> {
    loop {
        let printed = match look()? {
            Found::Json(value) => format!("{value}\n"),
            Found::Text(text) if io::stdout().is_terminal() => match tcgetwinsize(io::stdout()) {
                Ok(size) => format!("{CLEAR}{}", fitting(&text, size)),
                Err(_) => format!("{CLEAR}{text}"),
            },
            Found::Text(text) => format!("{text}\n"),
        };
        if output::try_print(&printed).is_err() {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

/// As much of a text as a terminal of this size can show. One that does not know its size says 0.
fn fitting(text: &str, size: Winsize) -> String {
    let room = |least: u16, cells: u16| if cells == 0 { usize::MAX } else { usize::from(cells.max(least)) };
    // The last row is the cursor's.
    let lines = text.lines().take(room(2, size.ws_row) - 1);
    lines.map(|line| line.chars().take(room(20, size.ws_col)).chain(['\n']).collect::<String>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(text: &str, columns: u16, rows: u16) -> Vec<usize> {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        fitting(text, size).lines().map(str::len).collect()
    }

    #[test]
    fn a_terminal_is_shown_what_it_has_room_for() {
        let text = format!("{0}\n{0}\nshort\n", "x".repeat(50));
        assert_eq!(fitted(&text, 30, 3), [30, 30]);
        assert_eq!(fitted(&text, 80, 24), [50, 50, 5]);
        assert_eq!(fitted(&text, 1, 1), [20]);
        assert_eq!(fitted(&text, 0, 0), [50, 50, 5]);
    }
}
