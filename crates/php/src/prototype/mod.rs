//! The prototype: loads PHP once, then only forks workers and reaps them.
//!
//! - `boot`: from the boot message to a PHP that runs; `confine` and `rootfs` (with `problem`) enter namespaces and another
//!   root directory, `readable` checks the application's files, `ini` writes PHP's settings,
//!   `unknown_settings` warns about names that PHP does not know
//! - `serve`: the loop; `preboot`: the boot of a worker script in the prototype, and then the loop
//! - `report`: messages to the supervisor
//!
//! A failure before PHP is up is reported as [`FromPrototype::Failed`], with a reason for the operator.

mod boot;
mod confine;
mod ini;
mod lock_folder;
mod preboot;
mod problem;
mod readable;
mod report;
mod rootfs;
mod serve;
mod unknown_settings;

use crate::worker::service::WorkerLimits;
use crate::{log, sapi, worker};
use boot::boot_php;
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::prototype::{FromPrototype, PrototypeBoot};
use howdah_protocol::sockets::control_socket::ControlSocket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use report::send;
use serve::{Prototype, Served};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Runs as a prototype until the supervisor closes the control socket, or until it has reported why PHP can't be loaded.
///
/// # Errors
/// When there is no supervisor.
pub fn run() -> Result<ExitCode, String> {
    let control = ControlSocket::from(
        take_inherited(CONTROL_FD)
            .map_err(|_| "this program is started by howdah; to serve a folder run: howdah serve DIR".to_owned())?,
    );
    let watched = die_with_supervisor(&control);
    watched.map_err(|error| format!("cannot watch the supervisor: {error}"))?;
    let _ = poll(&mut [PollFd::new(control.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    let booted = match PrototypeBoot::receive(&control) {
        Ok(Some((boot, descriptors))) => boot_php(&boot, &control, descriptors).map(|loaded| (boot, loaded)),
        Ok(None) => return Err("the supervisor is gone".to_owned()),
        Err(reason) => Err(reason.to_string()),
    };
    match booted {
        Ok((boot, loaded)) => {
            let booted = FromPrototype::Booted { php_version: sapi::php_version(), opcache: loaded.opcache };
            log::begin(&boot.application, boot.log_format);
            let admin = boot.admin_values.keys().map(|name| ("admin", name));
            let user = boot.user_values.keys().map(|name| ("user", name));
            for warning in unknown_settings::warnings(&boot.application, admin.chain(user), &sapi::setting_names()) {
                log::warn(&warning);
            }
            let PrototypeBoot { application, requests_per_worker: requests, memory_per_worker: memory, .. } = boot;
            let timeout = boot.timeout_ms.map(Duration::from_millis);
            let prototype = Prototype::new(control, loaded, WorkerLimits { application, requests, memory, timeout });
            match prototype.prebooted_script() {
                Some(script) => Ok(preboot::run(prototype, &script, booted)),
                None => {
                    prototype.report(&booted);
                    match prototype.serve()? {
                        Served::Forked(worker) => worker::run(worker),
                        Served::Stopped => sapi::shutdown(),
                    }
                    Ok(ExitCode::SUCCESS)
                }
            }
        }
        Err(reason) => {
            send(&control, &FromPrototype::Failed { reason });
            Ok(ExitCode::FAILURE)
        }
    }
}
