//! Diagnostics: one line each, to standard error. `HOWDAH_LOG` says what is shown: `debug`, or `warn,howdah_router=trace`.
//!
//! A closed standard error is no reason to fail, and one that nobody reads does not hold up a server.

use howdah_background_writer::standard_error;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

/// To be kept to the end of the process: what waits to be written is written then.
pub struct Diagnostics {
    writing: Writing,
}

/// Whether a line may wait for who reads standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// It may, and so may the process.
    Waits,
    /// A thread writes it. That starts with the first line, which must not come before privileges are dropped.
    NeverWaits,
}

const VARIABLE: &str = "HOWDAH_LOG";

/// How long the end waits for who reads standard error.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows the diagnostics of this process from now on.
pub fn start(writing: Writing) -> Diagnostics {
    let chosen = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<Targets>().ok());
    let shown = chosen.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let writer = match writing {
        Writing::Waits => BoxMakeWriter::new(io::stderr),
        Writing::NeverWaits => BoxMakeWriter::new(standard_error),
    };
    let lines = fmt::layer()
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .log_internal_errors(false);
    let _ = tracing_subscriber::registry().with(lines.with_filter(shown)).try_init();
    Diagnostics { writing }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        if self.writing == Writing::NeverWaits {
            standard_error().finish(PATIENCE);
        }
    }
}
