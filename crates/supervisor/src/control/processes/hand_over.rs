//! The messages that describe to a router what it does not know yet: generations, listening sockets, the configuration.
//!
//! A message that cannot be built, for want of descriptors or memory, is an error before anything is sent.

use crate::control::active::ActiveConfiguration;
use crate::generation::Generation;
use crate::generation::generations::Generations;
use crate::os::files::memory_file::memory_file;
use crate::os::listen::Listeners;
use crate::store::certificates::{self, Certificates};
use howdah_protocol::messages::router::{RouterConfiguration, ToRouter};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

/// The generations and sockets that a router has received, and not released.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The generations.
    pub generations: BTreeSet<u64>,
    /// The listening sockets.
    pub listeners: BTreeSet<u64>,
}

/// Messages to a router.
#[derive(Debug, Default)]
pub struct HandOver {
    /// The messages, each with its descriptors.
    pub messages: Vec<(ToRouter, Vec<OwnedFd>)>,
    /// The state of the router when it has received them.
    pub known: Known,
}

// === impl HandOver ===

impl HandOver {
    /// Without messages, to a router that knows this.
    pub fn to(known: Known) -> HandOver {
        HandOver { messages: Vec::new(), known }
    }

    /// The configuration, with its generations and sockets.
    pub fn add_configuration(
        &mut self,
        active: &ActiveConfiguration,
        generations: &Generations,
        listeners: &Listeners,
        certificates: &Certificates,
    ) -> io::Result<()> {
        for generation in generations.iter().filter(|generation| active.has_generation(generation.id())) {
            self.add_generation(generation)?;
        }
        for id in active.sockets_of_router().filter(|id| listeners.is_open(*id)) {
            if self.known.listeners.insert(id) {
                let message = ToRouter::AddListener { id, path: listeners.unix_path(id) };
                self.messages.push((message, vec![listeners.descriptor(id)?]));
            }
        }
        let certificates = certificates.for_router(certificates::used(&active.configuration));
        let mut descriptors = vec![
            memory_file(active.document.for_router().compact().as_bytes())?,
            memory_file(certificates.as_bytes())?,
        ];
        let log = active.access_log.as_ref().map(|log| log.descriptor()).transpose()?.flatten();
        let has_log_file = log.is_some();
        descriptors.extend(log);
        let configuration = RouterConfiguration {
            version: active.version,
            listeners: active.listeners.clone(),
            quic_sockets: active.quic_sockets.clone(),
            generations: active.generations.clone(),
            access_log: has_log_file,
        };
        self.messages.push((ToRouter::Configure(configuration), descriptors));
        Ok(())
    }

    /// The order to warm up a generation.
    pub fn add_warm_up(&mut self, generation: &Generation) -> io::Result<()> {
        self.add_generation(generation)?;
        if let Some(php) = generation.as_php() {
            let order = ToRouter::WarmUp { generation: php.id(), each_worker: php.has_worker_script() };
            self.messages.push((order, vec![php.warm_up()?]));
        }
        Ok(())
    }

    /// A generation and its processes.
    fn add_generation(&mut self, generation: &Generation) -> io::Result<()> {
        let id = generation.id();
        if self.known.generations.insert(id) {
            self.messages.extend(generation.for_router()?);
        }
        Ok(())
    }
}
