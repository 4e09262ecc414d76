//! The configuration that is in force, whole: what the threads share of it, and a thread's own view.
//!
//! A request keeps the view that it started with. When the last request lets an old view go, the generations that only
//! it named go with it, and the supervisor is told ([`Generation`]).

use crate::dispatch::pins::Pins;
use crate::php::generation::Generation;
use crate::php::port::Port;
use crate::proxy::Balancer;
use howdah_config::{Configuration, Listener};
use rustls::ServerConfig;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

/// A configuration, as all threads share it.
#[derive(Default)]
pub struct Snapshot {
    /// The configuration.
    pub configuration: Configuration,
    /// Where in the configuration the listener with a number is.
    pub listeners: HashMap<u64, usize>,
    /// The TLS of those listeners that have it, by number.
    pub tls: HashMap<u64, Arc<ServerConfig>>,
    /// Where links led when these generations were planned.
    pub pins: Pins,
    /// The generation of each application.
    pub generations: BTreeMap<String, Arc<Generation>>,
    /// The access log.
    pub access_log: Option<Arc<File>>,
}

/// A configuration, as one thread serves by it.
pub struct View {
    snapshot: Arc<Snapshot>,
    /// The thread's ports to the applications' generations, by application.
    pub ports: HashMap<String, Rc<Port>>,
    /// Whose turn it is, by upstream.
    pub balancers: HashMap<String, Balancer>,
}

// === impl View ===

impl View {
    /// A thread's view of a snapshot.
    pub fn new(snapshot: Arc<Snapshot>, ports: HashMap<String, Rc<Port>>) -> View {
        let upstreams = snapshot.configuration.upstreams.iter();
        let balancers = upstreams.map(|(name, upstream)| (name.clone(), Balancer::new(upstream))).collect();
        View { snapshot, ports, balancers }
    }

    /// The view before the first configuration.
    pub fn nothing() -> View {
        View::new(Arc::default(), HashMap::new())
    }

    /// The configuration.
    pub fn configuration(&self) -> &Configuration {
        &self.snapshot.configuration
    }

    /// Where links lead, for its files.
    pub fn pins(&self) -> &Pins {
        &self.snapshot.pins
    }

    /// The listener with this number; `None` once it was removed.
    pub fn listener(&self, id: u64) -> Option<&Listener> {
        self.snapshot.listeners.get(&id).map(|place| &self.snapshot.configuration.listeners[*place])
    }
}
