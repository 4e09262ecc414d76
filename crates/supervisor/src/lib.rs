//! The control plane: it starts, watches and stops every other process, and applies changes of the configuration.
//!
//! The command line ([`Start::become_supervisor`]) replaces itself with the supervisor ([`main`]), so that `ps` shows a
//! title and no secrets. The supervisor is one thread, because a child's death signal follows the thread that forked it,
//! and because nothing here is frequent. Other threads only wait for file systems, and one writes to standard error if
//! that is a pipe.
//!
//! Each folder imports only those below it:
//!
//! - `boot`: from the command line to a supervisor with its first configuration
//! - `event_loop`: messages of children, signals and timers
//! - `api`: the control socket, its routes, and the format of all answers
//! - `control`: one change at a time: plan, warm up, switch the router; reloads after deploys; shutdown
//! - `generation`: one application with one configuration: its prototype, its workers, its channel
//! - `plan`: checks an application against this machine, on a thread of its own
//! - `policy`: decisions over numbers and times: how many workers, when to start one again, how long to wait. Pure
//! - `store`: the configuration and the certificates, on disk
//! - `launcher`: another process: it becomes a program that is not howdah's own
//! - `os`: processes, sockets, files, accounts and control groups. No decisions
//!
//! An error before everything runs ends the supervisor with one line. After that only a signal ends it: children that die
//! are started again, and the log has the reason.

#![forbid(unsafe_code)]

mod api;
mod boot;
mod control;
mod event_loop;
mod generation;
pub mod launcher;
mod os;
mod plan;
mod policy;
mod store;

use generation::own_streams;
use howdah_background_writer::standard_error;
use std::process::ExitCode;

pub use howdah_protocol::log_format::{LOG_DAEMON_VARIABLE, LogFormat};
pub use howdah_protocol::plain_text;

pub use boot::start::{SUPERVISOR_TITLE, Start};
pub use control::changes::warnings::CONFIGURATION_WARNINGS;
pub use os::files::{hanging, logs};
pub use os::processes::spawn::{ACME_TITLE, EXPORTER_TITLE, LAUNCHER_TITLE, ROUTER_TITLE};
pub use os::{identity, system_error};
pub use plan::php::executables as php_executables;

/// The supervisor, in the process that [`Start::become_supervisor`] made.
pub fn main() -> ExitCode {
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| format!("the supervisor cannot start: {error}"))
        .and_then(|runtime| runtime.block_on(run()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            standard_error().push(format!("howdah: {reason}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let start = Start::inherited()?;
    let result = boot::boot(start)?.run().await;
    own_streams::finish().await;
    result
}
