//! Writes to standard output and standard error. A closed output, as after `| head`, is not a failure; a full disk is one.

use crate::terminal::plain::{json_lines, plain_output};
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

/// The first error of standard output.
static ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a text and flushes it. An error is kept for [`error`].
pub fn print(text: &str) {
    if let Err(error) = try_print(text)
        && error.kind() != ErrorKind::BrokenPipe
        && let Ok(mut first) = ERROR.lock()
    {
        first.get_or_insert(error);
    }
}

/// Prints JSON, as [`print`] does. Its strings may be text of strangers: they control no terminal.
pub fn print_json(json: &str) {
    print(&json_lines(json));
}

/// The first error of standard output: a command whose output is not whole has failed.
pub fn error() -> Option<io::Error> {
    ERROR.lock().ok().and_then(|mut error| error.take())
}

/// Prints an error on standard error. It may have names that strangers have chosen: they control no terminal.
pub fn print_error(problem: &str) {
    let _ = writeln!(io::stderr(), "howdah: {}", plain_output(problem));
}

/// Prints a text and flushes it.
///
/// # Errors
/// Standard output is closed, or cannot be written.
pub fn try_print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
