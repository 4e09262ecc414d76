//! The messages on standard error while a lab runs: one line for each run; on a terminal, a line that counts seconds. They have text of
//! the measured application, such as lines of its logs: it is made safe for a terminal.

use howdah_protocol::plain_text::{plain, plain_output};
use std::io::{IsTerminal, Write};

/// Where messages go.
#[derive(Debug)]
pub struct Messages {
    is_terminal: bool,
    has_open_line: bool,
}

/// The escape sequence that clears the terminal's line.
const CLEAR: &str = "\r\x1b[K";

// === impl Messages ===

impl Messages {
    /// Messages on standard error.
    pub fn new() -> Messages {
        Messages { is_terminal: std::io::stderr().is_terminal(), has_open_line: false }
    }

    /// A message that stays: a line, or several.
    pub fn line(&mut self, text: &str) {
        let clear = if self.has_open_line { CLEAR } else { "" };
        self.has_open_line = false;
        // A closed standard error is not a failure.
        let _ = writeln!(std::io::stderr(), "{clear}{}", plain_output(text));
    }

    /// A line that the next message replaces; only on a terminal.
    pub fn passing(&mut self, text: &str) {
        if self.is_terminal {
            self.has_open_line = true;
            let _ = write!(std::io::stderr(), "{CLEAR}{}", plain(text));
            let _ = std::io::stderr().flush();
        }
    }
}

impl Default for Messages {
    fn default() -> Messages {
        Messages::new()
    }
}

/// A bar of 20 characters: `[########............]`.
pub fn bar(done: f64) -> String {
    let full = (done.clamp(0.0, 1.0) * 20.0).round() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(20 - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_between_empty_and_full() {
        assert_eq!(bar(0.0), "[....................]");
        assert_eq!(bar(0.5), "[##########..........]");
        assert_eq!(bar(7.0), "[####################]");
    }
}
