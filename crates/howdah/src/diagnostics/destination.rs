//! The file of a log line: the server's log, or the log of the application that has caused the line.
//!
//! An application's own log (its `stderr`) gets the warnings that its scripts cause: a wrong header, a missing script. A line
//! that names the application itself is about its workers or its queue, and an error is howdah's or the machine's: both are
//! in the server's log.

use howdah_background_writer::{StandardError, standard_error};
use howdah_router::{ApplicationLog, current_application_log};
use std::io::{self, Write};
use std::sync::Arc;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Chooses the file of each line.
pub struct Destination;

/// The file of a line.
pub enum LineWriter {
    /// The server's log.
    Server(&'static StandardError),
    /// The application's own log.
    Application(Arc<ApplicationLog>),
}

/// The own log of the application that has caused this line, if it has one.
pub fn application_log(line: &Metadata<'_>) -> Option<Arc<ApplicationLog>> {
    let is_caused_by_script = *line.level() == Level::WARN && line.fields().field("application").is_none();
    if is_caused_by_script { current_application_log() } else { None }
}

// === impl Destination ===

impl MakeWriter<'_> for Destination {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        LineWriter::Server(standard_error())
    }

    fn make_writer_for(&self, line: &Metadata<'_>) -> LineWriter {
        application_log(line).map_or_else(|| self.make_writer(), LineWriter::Application)
    }
}

// === impl LineWriter ===

impl Write for LineWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            LineWriter::Server(log) => log.write(lines),
            LineWriter::Application(log) => (&**log).write(lines),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
