//! The process that answers Prometheus on `settings/metrics/listen`, and sends spans and numbers to the collector of
//! `settings/telemetry`.
//!
//! The supervisor reads no byte of an HTTP client, and the router may be the process that the numbers are about: it may
//! hang, or be dead. Therefore a small process of its own reads the requests, and gets the text from the supervisor.
//!
//! - `process`: the boot message, the privileges, and the texts of the supervisor
//! - `texts`: the texts that requests wait for
//! - `server`: the connections and their requests
//! - `telemetry`: the spans, from the pipe of the routers to the collector
//!
//! It has the user of the router, few connections, and short timeouts. The supervisor starts another one if it dies.

#![forbid(unsafe_code)]

pub mod connections;
mod process;
mod server;
mod telemetry;
mod texts;

use std::process::ExitCode;

/// Runs until the supervisor stops it.
pub fn main() -> ExitCode {
    match process::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the process of metrics and telemetry ends; the supervisor starts another one");
            ExitCode::FAILURE
        }
    }
}
