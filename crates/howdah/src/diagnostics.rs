//! Diagnostics: one line each, to standard error. `HOWDAH_LOG` says what is shown: `debug`, or `warn,howdah_router=trace`.
//!
//! A closed standard error is no reason to fail.

use std::io::{self, IsTerminal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

const VARIABLE: &str = "HOWDAH_LOG";

/// Shows the diagnostics of this process from now on.
pub fn start() {
    let chosen = std::env::var(VARIABLE).ok().and_then(|text| text.parse::<Targets>().ok());
    let shown = chosen.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .log_internal_errors(false);
    let _ = tracing_subscriber::registry().with(lines.with_filter(shown)).try_init();
}
