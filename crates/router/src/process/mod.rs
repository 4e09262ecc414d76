//! The router's process and its event-loop threads.
//!
//! - `router_process`: the control thread, which passes the supervisor's messages on as a `command` to each thread
//! - `generations`: those that it knows; `prepared`: a configuration that was checked
//! - `thread`: an event loop, with its listeners and its `ports` to generations
//! - `serving`: the life of a connection, among the open `connections` of its thread; `client`: its beginning; `access_change`:
//!   changes that end it

mod access_change;
mod client;
mod command;
mod connections;
mod generations;
mod ports;
mod prepared;
mod router_process;
mod serving;
mod thread;

use std::process::ExitCode;

/// Runs as a router until the supervisor stops it.
pub fn main() -> ExitCode {
    match router_process::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the router ends");
            ExitCode::FAILURE
        }
    }
}
