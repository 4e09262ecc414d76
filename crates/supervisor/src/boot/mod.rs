//! The boot: it makes a supervisor of what the command line passed on, and begins the change to the first configuration.
//!
//! A failure is one sentence for the person at the terminal.

pub mod start;

use crate::api::control_socket::ControlListener;
use crate::api::routes::Api;
use crate::control::Control;
use crate::control::changes::Changes;
use crate::control::changes::change::Origin;
use crate::control::changes::warnings::ConfigurationWarnings;
use crate::control::processes::acme::AcmeControl;
use crate::control::processes::exporter::ExporterHandle;
use crate::control::processes::router::RouterHandle;
use crate::control::runtime::Runtime;
use crate::control::stage::Stage;
use crate::event_loop::Supervisor;
use crate::generation::generations::Generations;
use crate::os::files::pid_file::PidFile;
use crate::os::files::runtime_folder::RuntimeFolder;
use crate::os::files::socket_folder::SocketFolder;
use crate::os::identity::{RouterAccount, UserAccount};
use crate::os::listen::{ChosenBy, Listeners};
use crate::os::processes::reap;
use crate::os::processes::signals::Signals;
use crate::os::processes::sweep::Sweep;
use crate::os::resources;
use crate::plan::defaults::Defaults;
use crate::plan::php::executables;
use crate::store::certificates::Certificates;
use crate::store::state_directory::{StateDirectory, make_certificate_folder};
use howdah_blocking_work::mounts;
use howdah_channel::MAX_THREADS;
use howdah_config::{Address, CertificateNames, Configuration, Context, Document, Settings};
use howdah_protocol::sockets::refused_descriptors::start_closers;
use howdah_telemetry::pipe::SpanPipe;
use start::Start;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;
use tokio::sync::mpsc;

/// Prepares everything.
///
/// # Errors
/// One sentence for the person at the terminal.
pub fn boot(start: Start) -> Result<Supervisor, String> {
    // First: once the control socket and the pid file exist, other programs may send signals.
    let signals = Signals::listen().map_err(system)?;
    let runtime_folder = start.runtime_dir.clone().map(RuntimeFolder::new);
    let sweep = Sweep::new(start.companion);
    start_closers().map_err(system)?;
    resources::raise_descriptors();
    resources::kernel_limits().warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    mounts::watch().map_err(system)?;
    reap::adopt_orphans().map_err(system)?;
    if start.check.is_none() {
        SocketFolder::remove_abandoned();
    }
    // A check leaves the state directory to the howdah that runs.
    let state_dir = start.state_dir.as_deref().filter(|_| start.check.is_none());
    let state = state_dir.map(StateDirectory::open).transpose()?;
    let certificates = load_certificates(&start, state.as_ref())?;
    let (document, configuration, origin) = first_configuration(&start, state.as_ref(), &certificates.names())?;
    let account = match start.account.clone() {
        Some(account) => account,
        None => account_of(&configuration.settings)?,
    };
    let chosen = start.router_account.clone().map(RouterAccount::of);
    let router_account = chosen.unwrap_or_else(|| RouterAccount::beside(&account));
    // The first search, so that the API knows the result.
    executables::known();
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = configuration.settings.listen_threads.map_or(cores, |threads| threads as usize);
    let pid_file = start.pid_file.as_deref().map(PidFile::write).transpose()?;
    let mut control_listeners = Listeners::default();
    let (sender, requests) = mpsc::unbounded_channel();
    if let Some(address) = &start.control {
        let listener = open_control(&mut control_listeners, address)?;
        tokio::spawn(listener.serve(sender));
    }
    let threads = u16::try_from(threads).unwrap_or(MAX_THREADS).clamp(1, MAX_THREADS);
    let defaults = Defaults {
        account,
        router: router_account.account.ids,
        state_folder: start.state_dir.clone().or(start.runtime_dir),
        has_configuration: start.recognised.is_none(),
    };
    let acme = AcmeControl::new(router_account.account.clone(), certificates.accounts());
    let mut quic_secret = [0; 32];
    getrandom::fill(&mut quic_secret).map_err(|error| format!("the system has no random bytes: {error}"))?;
    let spans = Arc::new(SpanPipe::open().map_err(system)?);
    let runtime = Runtime {
        stage: Stage::Booting,
        generations: Generations::new(threads),
        router: RouterHandle::new(router_account, threads, quic_secret, Arc::clone(&spans)),
        exporter: ExporterHandle::new(spans),
        listeners: Listeners::default(),
        certificates,
        acme,
    };
    let warnings = ConfigurationWarnings::new(&configuration.settings, defaults.has_configuration);
    let mut changes = Changes::new(state, defaults, warnings);
    changes.begin(document, configuration, origin, &[], Instant::now());
    Ok(Supervisor {
        signals,
        requests,
        control_listeners,
        api: Api::default(),
        scrapes: Vec::new(),
        control: Control::new(changes, runtime),
        sweep,
        log_file: start.log_file,
        recognised: start.recognised,
        checked_name: start.check,
        may_have_dead: false,
        others_first: false,
        is_announced: false,
        _pid_file: pid_file,
        _runtime_folder: runtime_folder,
    })
}

/// The certificates of the state directory, and those that another howdah issues.
fn load_certificates(start: &Start, state: Option<&StateDirectory>) -> Result<Certificates, String> {
    let certificates = match start.state_dir.as_deref() {
        Some(folder) if state.is_some() || folder.is_dir() => Certificates::load(folder)?,
        _ => Certificates::default(),
    };
    Ok(match &start.certificate_dir {
        Some(folder) => {
            make_certificate_folder(folder)?;
            certificates.with_issued(folder)
        }
        None => certificates,
    })
}

/// Opens the control socket.
fn open_control(listeners: &mut Listeners, address: &str) -> Result<ControlListener, String> {
    let address: Address = address.parse().map_err(|error| format!("--control: {error}"))?;
    if matches!(address, Address::Tcp(tcp) if !tcp.ip().is_loopback()) {
        return Err(format!(
            "--control: {address} can be reached from elsewhere, and the control API asks for no password; \
             write 127.0.0.1:PORT or unix:/path, and go there with ssh"
        ));
    }
    if matches!(address, Address::Tcp(_)) && rustix::process::geteuid().is_root() {
        tracing::warn!(
            "--control: {address} is open to every process of root, such as a proxy that an application can address; \
             unix:/path has the permissions of its file"
        );
    }
    let id = listeners.open(&address, ChosenBy::Control)?;
    listeners.listen(id, None, ChosenBy::Control)?;
    let socket = listeners.descriptor(id).map_err(system)?;
    ControlListener::new(socket, &address).map_err(system)
}

fn system(error: std::io::Error) -> String {
    format!("the supervisor cannot start: {error}")
}

/// The account of applications that name no user.
fn account_of(settings: &Settings) -> Result<UserAccount, String> {
    match (&settings.user, &settings.group) {
        (Some(user), group) => {
            UserAccount::named(user, group.as_deref()).map_err(|problem| format!("settings/user: {problem}"))
        }
        (None, Some(group)) => {
            UserAccount::unprivileged()?.in_group(group).map_err(|problem| format!("settings/group: {problem}"))
        }
        (None, None) => UserAccount::unprivileged(),
    }
}

fn first_configuration(
    start: &Start,
    state: Option<&StateDirectory>,
    certificates: &CertificateNames,
) -> Result<(Document, Configuration, Origin), String> {
    let read = |text: &str| {
        let document = Document::parse(text)?;
        let context = Context { certificates: Some(certificates) };
        Configuration::of_in(&document, context).map(|configuration| (document, configuration))
    };
    if let Some(text) = &start.configuration {
        let (document, configuration) = read(text).map_err(|error| error.to_string())?;
        let origin = if start.check.is_some() { Origin::Check } else { Origin::Start };
        return Ok((document, configuration, origin));
    }
    let kept = || state.map(StateDirectory::keep_failed).unwrap_or_default();
    match state.map(StateDirectory::configuration).transpose().map(Option::flatten) {
        Ok(None) => {}
        Ok(Some(text)) => match read(&text) {
            Ok((document, configuration)) => return Ok((document, configuration, Origin::Stored)),
            Err(error) => {
                tracing::error!(
                    "the stored configuration is not valid; howdah starts with an empty one, and {}: {error}",
                    kept()
                );
            }
        },
        Err(reason) => tracing::error!("howdah starts with an empty configuration, and {}: {reason}", kept()),
    }
    // It is not stored before the first change: what was there can be looked at.
    Ok((Document::initial(), Configuration::default(), Origin::Fallback))
}
