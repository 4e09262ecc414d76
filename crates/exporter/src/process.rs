//! The process, as the supervisor started it: it takes its boot message, drops its privileges, starts the server on a
//! thread, and then passes the supervisor's texts on. The end of file of the control socket is the supervisor's death.

use crate::server::{self, Access};
use crate::texts::Texts;
use howdah_config::Configuration;
use howdah_protocol::child::inherited::{CONTROL_FD, take_inherited};
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::exporter::{ExporterBoot, ToExporter};
use howdah_protocol::sockets::control_socket::ControlSocket;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;

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
    let ExporterBoot { identity, user, configuration } = boot;
    identity.assume(user.as_deref(), None)?;
    die_with_supervisor(&control)?;
    let configuration = Configuration::parse(&configuration).map_err(|error| io::Error::other(error.to_string()))?;
    let settings = configuration.settings.metrics.ok_or_else(|| io::Error::other("there are no settings"))?;
    let listener = next(descriptors)?;
    let texts = Arc::new(Texts::new(Arc::clone(&control)));
    let (access, served) = (Access::of(&settings), Arc::clone(&texts));
    std::thread::Builder::new().name("metrics listener".to_owned()).spawn(move || {
        if let Err(error) = server::run(listener, access, served) {
            tracing::error!(%error, "the metrics listener ends");
        }
        // Without it, the process has no purpose: the supervisor starts another one.
        std::process::exit(1);
    })?;
    while let Some((message, descriptors)) = control.wait_for_long()? {
        match message {
            ToExporter::Text { id } => {
                let mut file = File::from(next(descriptors)?);
                let mut text = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut text)?;
                texts.arrived(id, Some(text));
            }
            ToExporter::NoText { id } => texts.arrived(id, None),
            ToExporter::Boot(_) => return Err(io::Error::other("a second boot message")),
        }
    }
    Ok(())
}

fn next(descriptors: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    descriptors.into_iter().next().ok_or_else(|| io::Error::other("a message lacks its descriptor"))
}
