//! A configuration, and what serves it.

use crate::os::files::logs::AccessLogFile;
use crate::os::listen::SocketAccess;
use howdah_config::{Configuration, Document, Listener};
use std::collections::BTreeMap;

/// A configuration with its processes and sockets: the active one, the next one of a change, or the one before a switch.
#[derive(Debug)]
pub struct ActiveConfiguration {
    /// Its number. Each change has a larger one.
    pub version: u64,
    /// Its text, as the user wrote it.
    pub document: Document,
    /// Its content.
    pub configuration: Configuration,
    /// The generation of each application that starts and does not drain.
    pub generations: BTreeMap<String, u64>,
    /// Why each application that does not start fails, in one line.
    pub failures: BTreeMap<String, String>,
    /// Why each part that cannot be opened is missing, by its option: listeners, the access log.
    pub missing: BTreeMap<String, String>,
    /// The listening sockets, in the order of the configuration. One that is missing has a number without a socket.
    pub listeners: Vec<u64>,
    /// The sockets of QUIC, by the listeners that have HTTP/3.
    pub quic_sockets: BTreeMap<u64, u64>,
    /// The access to each of them.
    pub socket_access: Vec<SocketAccess>,
    /// The listening socket of `settings/metrics`.
    pub metrics_listener: Option<u64>,
    /// The access log while one is configured. A router that is started again writes to the same file.
    pub access_log: Option<AccessLogFile>,
}

// === impl ActiveConfiguration ===

impl ActiveConfiguration {
    /// Before the first configuration.
    pub fn empty() -> ActiveConfiguration {
        ActiveConfiguration {
            version: 0,
            document: Document::initial(),
            configuration: Configuration::default(),
            generations: BTreeMap::new(),
            failures: BTreeMap::new(),
            missing: BTreeMap::new(),
            listeners: Vec::new(),
            quic_sockets: BTreeMap::new(),
            metrics_listener: None,
            socket_access: Vec::new(),
            access_log: None,
        }
    }

    /// All its sockets.
    pub fn sockets(&self) -> Vec<u64> {
        self.sockets_of_router().chain(self.metrics_listener).collect()
    }

    /// The sockets that the router gets.
    pub fn sockets_of_router(&self) -> impl Iterator<Item = u64> {
        self.listeners.iter().chain(self.quic_sockets.values()).copied()
    }

    /// Takes over the access log of the other configuration if both write to the same file: that one may have been
    /// reopened meanwhile.
    pub fn keep_access_log_of(&mut self, other: &ActiveConfiguration) {
        if let (Some(log), Some(known)) = (&mut self.access_log, &other.access_log)
            && log.is_same_as(known)
        {
            log.clone_from(known);
        }
    }

    /// The access to the socket of this listener, if it is listed here with the same options.
    pub fn access_of(&self, listener: &Listener) -> Option<SocketAccess> {
        let mut known = self.configuration.listeners.iter().zip(&self.socket_access);
        let is_same = |known: &Listener| known.address == listener.address && known.socket == listener.socket;
        known.find(|(known, _)| is_same(known)).map(|(_, access)| *access)
    }

    /// The sockets that the other configuration has, too, with another access, and the access that they have in this
    /// one.
    pub fn other_access_than(&self, other: &ActiveConfiguration) -> impl Iterator<Item = (u64, SocketAccess)> {
        let access_in = |configuration: &ActiveConfiguration, id: u64| {
            let index = configuration.listeners.iter().position(|known| *known == id)?;
            configuration.socket_access.get(index).copied()
        };
        let own = self.listeners.iter().filter_map(move |id| Some((*id, access_in(self, *id)?)));
        own.filter(move |(id, access)| access_in(other, *id).is_some_and(|known| known != *access))
    }

    /// Whether there is something to try again: applications that do not start, or parts that are missing.
    pub fn is_incomplete(&self) -> bool {
        !self.failures.is_empty() || !self.missing.is_empty()
    }

    /// Whether this generation serves one of its applications.
    pub fn has_generation(&self, id: u64) -> bool {
        self.generations.values().any(|known| *known == id)
    }
}
