//! Standard output. That it is closed, as by `| head`, is no reason to fail.

use std::io::{self, Write};

/// Prints a text, at once.
pub fn print(text: &str) {
    let _ = try_print(text);
}

/// Prints a text, at once.
///
/// # Errors
/// When nobody reads it.
pub fn try_print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
