//! Log messages: one line each, on standard error. The variable `HOWDAH_LOG` sets the level: `debug`, or
//! `warn,howdah_router=trace`; default `info`.
//!
//! A line about a request has the request's application, method, URI and client. See [`line_format`] for the two forms,
//! and [`destination`] for the lines that an application's own log gets.
//!
//! With `howdah run --log syslog` or `journald`, a daemon gets the lines of all processes.
//!
//! A closed standard error is not a failure, and a reader that stops reading it does not block a server. All processes
//! limit similar lines ([`log_limit`]): the dashboard is a command, and has clients. A server logs its own panics as bugs.

mod destination;
mod line_format;

use crate::log_limit::{self, LogLimit};
use destination::Destination;
use howdah_background_writer::standard_error;
use howdah_supervisor::LOG_DAEMON_VARIABLE;
use howdah_system_log::SystemLog;
use howdah_system_log::log::Log;
use line_format::LineFormat;
use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;

/// Writes the queued lines when it is dropped: keep it until the process exits.
pub struct Diagnostics {
    writing: Writing,
    daemon: Option<Arc<SystemLog>>,
}

/// The thread that writes the lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// The thread that logs, which may block: right for a command.
    Direct,
    /// A background thread, so that no thread of a server blocks. It starts with the first line, which must not come
    /// before privileges are dropped.
    Background,
}

const VARIABLE: &str = "HOWDAH_LOG";

/// The crate that reads the frames of HTTP/2.
const FRAMES: &str = "h2";
/// At exit: timeout of the write of the queued lines.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts the logging of this process.
pub fn start(writing: Writing) -> Diagnostics {
    let configured = std::env::var(VARIABLE).unwrap_or_default();
    let targets = configured.parse::<Targets>().ok().filter(|_| !configured.is_empty());
    let mut targets = targets.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    if !configured.contains(FRAMES) {
        // It warns of errors that any client can make. The router logs those that matter.
        targets = targets.with_target(FRAMES, LevelFilter::OFF);
    }
    let writer = match writing {
        Writing::Direct => BoxMakeWriter::new(io::stderr),
        Writing::Background => BoxMakeWriter::new(Destination),
    };
    let daemon = daemon();
    let lines = fmt::layer()
        .event_format(LineFormat::of_environment(daemon.clone()))
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal())
        .log_internal_errors(false);
    if writing == Writing::Background {
        std::panic::set_hook(Box::new(log_panic));
    }
    let _ = tracing_subscriber::registry().with(lines.with_filter(targets.and(LogLimit))).try_init();
    Diagnostics { writing, daemon }
}

/// The daemon that the command line chose for all processes: the commands that start a supervisor have no such variable.
fn daemon() -> Option<Arc<SystemLog>> {
    let daemon = std::env::var(LOG_DAEMON_VARIABLE).ok()?.parse().ok()?;
    Some(Arc::new(SystemLog::new(&daemon, Log::Error)))
}

/// One line for a panic, which standard error's own hook would write as several, and without a background thread.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!("howdah panicked at {location}, which is a bug; please report it: {text}");
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        log_limit::report();
        if self.writing == Writing::Background {
            self.daemon.iter().for_each(|daemon| daemon.finish(EXIT_TIMEOUT));
            standard_error().finish(EXIT_TIMEOUT);
        }
    }
}
