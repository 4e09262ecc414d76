//! A configuration, and what serves it.

use crate::os::files::logs::AccessLogFile;
use howdah_config::{Configuration, Document};
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
    /// The generation of each application.
    pub generations: BTreeMap<String, u64>,
    /// Why each application that has no generation does not start, in one line.
    pub failures: BTreeMap<String, String>,
    /// The listening sockets, in the order of the configuration.
    pub listeners: Vec<u64>,
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
            listeners: Vec::new(),
            access_log: None,
        }
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

    /// Whether this generation serves one of its applications.
    pub fn has_generation(&self, id: u64) -> bool {
        self.generations.values().any(|known| *known == id)
    }
}
