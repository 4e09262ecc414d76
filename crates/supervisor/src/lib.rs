//! The control plane: the life of every other process.
//!
//! The command line ([`Start::become_supervisor`]) replaces itself with the supervisor ([`main`]), so that `ps` shows
//! a title and no secrets. The supervisor is one thread, because a child's death signal follows the thread that
//! forked it, and because everything here happens seldom. Other threads only look at files, which may take long, and
//! one writes to standard error, if that is a pipe.
//!
//! - `start`, `boot`: from the command line to a supervisor with its first configuration
//! - `change`, `switch`: from one configuration to the next, without losing a request
//! - `control_socket`, `api`, `status`, `state`: the control API, and what outlives the process
//! - `pid_file`: the file with the process id
//! - `resources`: what the kernel grants of descriptors and backlogs
//! - `plan`, `planning`: what an application asks for, checked against the machine; on a thread of its own
//! - `confinement`, `cgroup`, `readable`: what it may see, what it may take, and what its user must be able to read
//! - `resolution`, `watch`, `reload`: where its symbolic links lead, what sees that they lead elsewhere or that its files
//!   change, and what is done then
//! - `warming`: the first requests of a new generation
//! - `slow_log`, `processes`, `profile`: what is slow, what runs now, and where the time goes
//! - `certificates`: chains and keys by name, in memory and on disk
//! - [`php`], [`identity`], `listen`, `logs`: what a start needs, and what can be wrong with it
//! - [`system_error`]: errors of the system, in words
//! - `spawn`, `reap`, `link`, `signals`: how processes are born and die, and how they talk; no policy
//! - `process`: whose a process is that somebody else started, and how to kill it and no other
//! - `pool`, `sizing`: how many workers an application has, stated or found; pure
//! - `gauge`, `machine`: what is measured for that: what its workers use, and what there is
//! - `backoff`, `respawn`, `patience`, `workers`: the policy, pure: when is which worker started again, how long a start may
//!   take
//! - `generation`, `said`: one application: its prototype, its workers, its channel; what it says while it starts
//! - `router`, `silence`: its birth, what it has been told, its death; when it does not answer
//! - `supervise`, `shutdown`, `sweep`, `banner`: the event loop, its end, what PHP left running, and the first lines
//!
//! What fails before everything is up ends the supervisor with one line. After that nothing ends it but a signal:
//! children that die are started again, and what they said is in the log.

#![forbid(unsafe_code)]

mod api;
mod boot;
mod control;
mod event_loop;
mod generation;
mod os;
mod plan;
mod policy;
mod store;

use howdah_background_writer::standard_error;
use std::process::ExitCode;

pub use boot::start::{SUPERVISOR_TITLE, Start};
pub use os::spawn::ROUTER_TITLE;
pub use os::{identity, logs, system_error};
pub use plan::php;

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
    boot::boot(start)?.run().await
}
