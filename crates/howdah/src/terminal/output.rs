//! What the person at the terminal reads. That it is closed, as by `| head`, is no reason to fail.

use std::io::{self, Write};

/// Prints a text, at once.
pub fn print(text: &str) {
    let _ = try_print(text);
}

/// Says on standard error what is wrong.
pub fn complain(problem: &str) {
    let _ = writeln!(io::stderr(), "howdah: {problem}");
}

/// Prints a text, at once.
///
/// # Errors
/// When nobody reads it.
pub fn try_print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
