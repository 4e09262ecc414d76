//! The messages between the supervisor and the router.

use crate::identity::Identity;
use howdah_channel::{Geometry, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Supervisor to router.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToRouter {
    /// Become a user, and start the threads. The first message.
    Boot(RouterBoot),
    /// A generation that a configuration will name. Descriptors: its channel's memory, the text of its
    /// [`GenerationPaths`](crate::generation_paths::GenerationPaths), then one eventfd for each thread.
    AddGeneration(GenerationBoot),
    /// Have a generation that no configuration names yet answer these requests: [`FromRouter::Warmed`]. Descriptors: the
    /// text of them, an array of [`WarmUpRequest`](crate::warm_up::WarmUpRequest)s.
    WarmUp {
        /// The generation.
        generation: u64,
    },
    /// No configuration will name this generation.
    DropGeneration {
        /// The generation.
        generation: u64,
    },
    /// A listening socket that a configuration will name. Descriptors: the socket.
    AddListener {
        /// Its number, unique for the life of the supervisor.
        id: u64,
    },
    /// Serve by this configuration from now on. Descriptors: its text; the certificates, a JSON object of names and PEM
    /// bundles; the access log, if there is one.
    Configure(RouterConfiguration),
    /// A worker is started: it may claim requests. Of each that lives, after the boot message and from then on.
    WorkerStarted {
        /// The generation it belongs to.
        generation: u64,
        /// Its name.
        worker: WorkerId,
    },
    /// A worker is dead: its request is lost.
    WorkerDied {
        /// The generation it belonged to.
        generation: u64,
        /// Its name.
        worker: WorkerId,
        /// What it ran, by its own word, if it died of that as far as the supervisor knows: slot and sequence number.
        killer: Option<(u16, u32)>,
    },
    /// All workers of a generation that broke the channel's rules are dead.
    WorkersReplaced {
        /// The generation.
        generation: u64,
    },
    /// Write the access log to this descriptor from now on.
    ReopenAccessLog,
    /// Say how much there is to do: see [`FromRouter::Load`].
    ReportLoad,
    /// Accept no more connections, finish the requests under way, then exit.
    Drain,
}

/// What a router needs to know first.
#[derive(Debug, Serialize, Deserialize)]
pub struct RouterBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// How many event-loop threads to run.
    pub threads: u16,
}

/// A generation that a router submits requests to.
#[derive(Debug, Serialize, Deserialize)]
pub struct GenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// The size of its channel.
    pub geometry: Geometry,
    /// If more workers are started when fewer than this are idle: [`FromRouter::WorkersWanted`].
    pub spare_workers: Option<u32>,
    /// How long a worker may take for a request, in milliseconds: [`FromRouter::Overdue`].
    pub timeout_ms: Option<u64>,
    /// How long a request may wait for a worker, in milliseconds.
    pub queue_timeout_ms: u64,
}

/// What a configuration is about, besides its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterConfiguration {
    /// Its number: later ones are larger.
    pub version: u64,
    /// The numbers of its listening sockets, in the order of its text. What is not named here is closed.
    pub listeners: Vec<u64>,
    /// The generation of each application. What is not named here is released.
    pub generations: BTreeMap<String, u64>,
    /// Whether an access log is among the descriptors.
    pub access_log: bool,
}

/// Router to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromRouter {
    /// All threads serve by this configuration.
    Configured {
        /// Its number.
        version: u64,
    },
    /// This configuration can't be served; the one before it goes on.
    Rejected {
        /// Its number.
        version: u64,
        /// Why, in a sentence.
        reason: String,
    },
    /// A generation has answered its warm-up.
    Warmed {
        /// The generation.
        generation: u64,
        /// Why it is not fit to be put in force, in a sentence.
        refusal: Option<String>,
    },
    /// No request uses this generation any more, nor will one.
    Released {
        /// The generation.
        generation: u64,
    },
    /// A worker of this generation broke the channel's rules: all its workers must be replaced.
    Violation {
        /// The generation.
        generation: u64,
        /// Which rule.
        rule: String,
    },
    /// Fewer workers are idle than should be.
    WorkersWanted {
        /// The generation.
        generation: u64,
        /// How many requests wait for a worker.
        waiting: u64,
    },
    /// A worker takes longer for its request than it may: the request must be ended. Again after a while, if it goes on.
    Overdue {
        /// The generation.
        generation: u64,
        /// The worker.
        worker: WorkerId,
        /// The request: its slot, and the slot's sequence number.
        request: (u16, u32),
    },
    /// The answer to [`ToRouter::ReportLoad`].
    Load(RouterLoad),
}

/// How much a router has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterLoad {
    /// Connections of clients accepted since it started.
    pub connections_accepted: u64,
    /// Of these, the ones that are closed.
    pub connections_closed: u64,
    /// Connections on which a request is under way.
    pub connections_active: u64,
    /// Requests since it started.
    pub requests_total: u64,
    /// Requests under way or waiting, by generation.
    pub requests_active: BTreeMap<u64, u64>,
    /// Requests that wait for a worker, by generation.
    pub requests_waiting: BTreeMap<u64, u64>,
    /// Requests that were answered 503 since no worker took them in time, by generation.
    pub requests_refused: BTreeMap<u64, u64>,
}
