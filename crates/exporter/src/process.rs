//! The process, as the supervisor started it: it takes its boot message, drops its privileges, starts the server on a
//! thread, and then passes the supervisor's texts on. The end of file of the control socket is the supervisor's death.

use crate::server::{self, Access};
use crate::telemetry::{self, Setup};
use crate::texts::Texts;
use howdah_background_writer::standard_error;
use howdah_blocking_work::NAMES;
use howdah_config::Configuration;
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::exporter::{ExporterBoot, ToExporter};
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until the supervisor closes the control socket.
///
/// # Errors
/// When the process cannot start, or a message of the supervisor is not valid.
pub fn run() -> io::Result<()> {
    let control = Arc::new(ControlSocket::from(take_inherited(CONTROL_FD)?));
    die_with_supervisor(&control)?;
    let Some((ToExporter::Boot(boot), descriptors)) = control.wait_for_long()? else {
        return Err(io::Error::other("the supervisor sent no boot message"));
    };
    let ExporterBoot { identity, user, configuration, has_listener, telemetry } = boot;
    identity.assume(user.as_deref(), None)?;
    die_with_supervisor(&control)?;
    let configuration = Configuration::parse(&configuration).map_err(|error| io::Error::other(error.to_string()))?;
    let mut descriptors = descriptors.into_iter();
    let texts = Arc::new(Texts::new(Arc::clone(&control)));
    if let Some(settings) = configuration.settings.metrics.filter(|_| has_listener) {
        let (listener, access, served) = (next(&mut descriptors)?, Access::of(&settings), Arc::clone(&texts));
        spawn("metrics listener", move || server::run(listener, access, served))?;
    }
    let finishing = Arc::new(Notify::new());
    if let (Some(boot), Some(settings)) = (telemetry, configuration.settings.telemetry) {
        let (pipe, texts, control) = (next(&mut descriptors)?, Arc::clone(&texts), Arc::clone(&control));
        let finishing = Arc::clone(&finishing);
        NAMES.start()?;
        spawn("telemetry", move || telemetry::run(Setup { pipe, settings, boot, texts, control, finishing }))?;
    }
    while let Some((message, descriptors)) = control.wait_for_long()? {
        match message {
            ToExporter::Text { id } => {
                let mut file = File::from(next(&mut descriptors.into_iter())?);
                let mut text = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut text)?;
                texts.arrived(id, Some(text));
            }
            ToExporter::NoText { id } => texts.arrived(id, None),
            ToExporter::Finish => finishing.notify_one(),
            ToExporter::Boot(_) => return Err(io::Error::other("a second boot message")),
        }
    }
    Ok(())
}

/// Starts a thread. Without it, the process has no purpose: the supervisor starts another one.
fn spawn(name: &'static str, run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let run = move || {
        let ended = run();
        if let Err(error) = &ended {
            tracing::error!(%error, "the thread of the {name} ends");
        }
        write_last_lines();
        std::process::exit(i32::from(ended.is_err()));
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// The log lines that a thread may still have to write.
fn write_last_lines() {
    standard_error().finish(LAST_LINES_TIMEOUT);
}

fn next(descriptors: &mut impl Iterator<Item = OwnedFd>) -> io::Result<OwnedFd> {
    descriptors.next().ok_or_else(|| io::Error::other("a message lacks its descriptor"))
}
