//! Listeners and the access log, which a change opens besides applications.
//!
//! A user of the machine who owns the folder of one, or has taken its port, must not stop all others when howdah starts.

use crate::control::active::ActiveConfiguration;
use crate::os::files::hanging;
use crate::os::files::logs::AccessLogFile;
use crate::os::listen::{ChosenBy, Listeners, SocketAccess};
use howdah_config::{Address, Configuration, Listener, LogDestination};
use std::collections::BTreeMap;

/// The option of the metrics listener.
pub const METRICS_LISTENER: &str = "settings/metrics/listen";

/// The parts that were opened, or are missing.
pub struct OpenedParts<'a> {
    are_tolerated: bool,
    /// The parts that are missing in the active configuration.
    known: &'a BTreeMap<String, String>,
    missing: &'a mut BTreeMap<String, String>,
}

// === impl OpenedParts ===

impl OpenedParts<'_> {
    /// The parts of a change, to which `missing` belongs. `are_tolerated`: all others are served if one cannot be opened.
    pub fn of<'a>(
        are_tolerated: bool,
        active: &'a ActiveConfiguration,
        missing: &'a mut BTreeMap<String, String>,
    ) -> OpenedParts<'a> {
        OpenedParts { are_tolerated, known: &active.missing, missing }
    }

    /// The part of this option; `None` if it cannot be opened, and others are served nevertheless: at the start with a stored
    /// configuration, and as long as it was missing before.
    ///
    /// # Errors
    /// The change cannot do without it.
    pub fn take<T>(&mut self, option: String, opened: Result<T, String>) -> Result<Option<T>, String> {
        let known = self.known.get(&option);
        match opened {
            Err(reason) if self.are_tolerated || known.is_some() => {
                if known != Some(&reason) {
                    tracing::error!("{reason}; howdah serves without it, and tries again");
                }
                self.missing.insert(option, reason);
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }
}

/// The option of a listener.
pub fn option_of_listener(listener: &Listener) -> String {
    format!("listeners/{}", listener.address)
}

/// The option of the access log. Another file is another option, whose failure is an error of its change.
pub fn option_of_access_log(configuration: &Configuration) -> String {
    let log = configuration.access_log.as_ref().map(|log| match &log.destination {
        LogDestination::Path(path) => path.display().to_string(),
        LogDestination::Stdout => "-".to_owned(),
        LogDestination::Daemon(daemon) => daemon.to_string(),
    });
    format!("access_log: {}", log.unwrap_or_default())
}

/// Opens the access log, unless it is open.
///
/// # Errors
/// With the option and what to do.
pub fn open_access_log(
    configuration: &Configuration,
    active: &ActiveConfiguration,
) -> Result<Option<AccessLogFile>, String> {
    let Some(wanted) = &configuration.access_log else { return Ok(None) };
    match active.access_log.as_ref().filter(|log| log.writes_to(&wanted.destination)) {
        Some(log) => Ok(Some(log.clone())),
        None => {
            let is_start = active.version == 0;
            let timeout = if is_start { hanging::TIMEOUT_AT_START } else { hanging::TIMEOUT };
            AccessLogFile::open(&wanted.destination, timeout).map(Some)
        }
    }
}

/// The sockets of the listeners. New ones are only bound: no client waits for what boots.
///
/// # Errors
/// With the address and what to do.
pub fn open_listeners(
    configuration: &Configuration,
    socket_access: &[SocketAccess],
    listeners: &mut Listeners,
    chosen_by: ChosenBy,
    parts: &mut OpenedParts,
) -> Result<Vec<u64>, String> {
    let mut open = |listener: &Listener, access: SocketAccess| match listeners.find(&listener.address) {
        Some(id) => Ok(id),
        None => {
            let opened = listeners.open(&listener.address, chosen_by);
            let opened = opened.and_then(|id| listeners.set_access(id, access).map(|()| id));
            Ok(parts.take(option_of_listener(listener), opened)?.unwrap_or_else(|| listeners.absent()))
        }
    };
    let listeners = configuration.listeners.iter().zip(socket_access);
    listeners.map(|(listener, access)| open(listener, *access)).collect()
}

/// The sockets of the listeners with HTTP/3, by the numbers of these listeners.
///
/// # Errors
/// As above.
pub fn open_quic_sockets(
    configuration: &Configuration,
    ids: &[u64],
    listeners: &mut Listeners,
    parts: &mut OpenedParts,
) -> Result<BTreeMap<u64, u64>, String> {
    let with_http3 = configuration.listeners.iter().zip(ids).filter(|(listener, _)| listener.http3.is_some());
    let mut sockets = BTreeMap::new();
    for (listener, id) in with_http3 {
        if !listeners.is_open(*id) {
            continue;
        }
        let socket = listeners.find_or_open_quic(*id);
        let socket = socket.map_err(|problem| format!("listeners/{}: {problem}", listener.address));
        sockets
            .extend(parts.take(format!("listeners/{}/http3", listener.address), socket)?.map(|socket| (*id, socket)));
    }
    Ok(sockets)
}

/// The socket of the metrics listener.
///
/// # Errors
/// As above.
pub fn open_metrics_listener(configuration: &Configuration, listeners: &mut Listeners) -> Result<Option<u64>, String> {
    let Some(metrics) = &configuration.settings.metrics else { return Ok(None) };
    let address = Address::Tcp(metrics.listen);
    let opened = listeners.find(&address).map_or_else(|| listeners.open(&address, ChosenBy::Metrics), Ok);
    opened.map(Some).map_err(|problem| format!("settings/metrics/listen: {problem}"))
}
