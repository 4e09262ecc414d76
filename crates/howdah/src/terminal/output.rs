//! Writes to standard output and standard error. A closed output, as after `| head`, is not a failure.

use std::io::{self, Write};

/// Prints a text and flushes it.
pub fn print(text: &str) {
    let _ = try_print(text);
}

/// Prints an error on standard error.
pub fn print_error(problem: &str) {
    let _ = writeln!(io::stderr(), "howdah: {problem}");
}

/// Prints a text and flushes it.
///
/// # Errors
/// Standard output is closed, or cannot be written.
pub fn try_print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
