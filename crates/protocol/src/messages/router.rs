//! The messages between the supervisor and the router.

use crate::child::identity::Identity;
use crate::messages::generation_paths::TargetPaths;
use howdah_channel::{Geometry, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// From the supervisor to the router.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToRouter {
    /// Become a user, and start the threads. The first message. Descriptors: the memory that the threads count in,
    /// then the end of the pipe where spans are written.
    Boot(RouterBoot),
    /// Prepare a generation that a configuration will name. Descriptors: its channel's memory, the text of its
    /// [`GenerationPaths`](crate::messages::generation_paths::GenerationPaths), then one eventfd for each thread.
    AddGeneration(GenerationBoot),
    /// Prepare the generation of an HTTP application, which a configuration will name.
    AddHttpGeneration(HttpGenerationBoot),
    /// Whether a process of an HTTP application gets requests, and where.
    HttpProcess {
        /// The generation it belongs to.
        generation: u64,
        /// Its index.
        index: u16,
        /// Its address. The next process in its place may have another port.
        address: String,
        /// Whether it gets requests.
        is_ready: bool,
    },
    /// Prepare the generation of a RoadRunner application, which a configuration will name.
    AddRoadRunnerGeneration(RoadRunnerGenerationBoot),
    /// A worker of RoadRunner has booted, and gets requests from now on. Descriptors: the pipe of its requests, then the
    /// pipe of its answers; or its connection, which has both.
    RoadRunnerWorkerReady {
        /// The generation it belongs to.
        generation: u64,
        /// Its name.
        worker: RoadRunnerWorker,
    },
    /// A worker of RoadRunner is dead, or about to exit: it gets no more requests.
    RoadRunnerWorkerGone {
        /// The generation it belonged to.
        generation: u64,
        /// Its name.
        worker: RoadRunnerWorker,
    },
    /// Let a worker of RoadRunner exit when it has finished its request: [`FromRouter::RoadRunnerWorkerReleased`].
    RetireRoadRunnerWorker {
        /// The generation it belongs to.
        generation: u64,
        /// Its name.
        worker: RoadRunnerWorker,
    },
    /// Prepare the generation of a FastCGI application, which a configuration will name.
    AddFastCgiGeneration(FastCgiGenerationBoot),
    /// Send these requests to a generation that no configuration names yet: [`FromRouter::WarmUpEnded`]. Descriptors: the
    /// text of the requests, an array of [`WarmUpRequest`](crate::messages::warm_up::WarmUpRequest)s.
    WarmUp {
        /// The generation.
        generation: u64,
        /// Whether each worker has a state of its own that the requests fill.
        each_worker: bool,
    },
    /// Drop this generation: no configuration will name it.
    DropGeneration {
        /// The generation.
        generation: u64,
    },
    /// Keep a listening socket, or a socket of QUIC, that a configuration will name. Descriptors: the socket.
    AddListener {
        /// Its number, unique for the life of the supervisor.
        id: u64,
        /// The path of a Unix socket, as it is configured: it may be bound to another path of the same folder.
        path: Option<String>,
    },
    /// Serve with this configuration from now on. Descriptors: its text; the certificates, a JSON object of names and PEM
    /// bundles; the access log, if there is one.
    Configure(RouterConfiguration),
    /// Use these certificates for new connections of the listeners. Descriptors: the certificates, as in
    /// [`ToRouter::Configure`].
    ReplaceCertificates,
    /// Use these certificates for names that are not in the configuration (`on_demand`). Descriptors: a JSON object of names
    /// and PEM bundles, with `null` for a name that has no certificate any more.
    OnDemandCertificates {
        /// Whether they are all, or only the changes.
        all: bool,
    },
    /// There is no certificate for a name for now: [`FromRouter::UnknownName`].
    NameRefused {
        /// The name.
        name: String,
    },
    /// Answer these challenges of certificate authorities, and no others: [`FromRouter::AnswersChallenges`]. Descriptors:
    /// the text of the [`ChallengeAnswers`](crate::messages::acme::ChallengeAnswers).
    AnswerChallenges {
        /// The number of this set: later ones are larger.
        version: u64,
    },
    /// A worker is started: it may claim requests. Sent for each living worker after the `AddGeneration` of its
    /// generation, and for each later start.
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
        /// The request that probably killed it, as the worker reported it: slot and sequence number.
        killer: Option<(u16, u32)>,
    },
    /// All workers of a generation that broke the channel's rules are dead.
    WorkersReplaced {
        /// The generation.
        generation: u64,
    },
    /// Write the access log to the descriptor of this message from now on.
    ReopenAccessLog,
    /// Write log messages to the descriptor of this message from now on.
    ReopenErrorLog,
    /// Answer [`FromRouter::Load`].
    ReportLoad,
    /// Accept no more connections, finish the requests under way, then exit.
    Drain,
}

/// The boot message of a router.
#[derive(Debug, Serialize, Deserialize)]
pub struct RouterBoot {
    /// Becomes this user.
    pub identity: Identity,
    /// User's name, for supplementary groups.
    pub user: Option<String>,
    /// A supplementary group besides those of the user.
    pub added_group: Option<u32>,
    /// The number of event-loop threads.
    pub threads: u16,
    /// The marker of the pipe of the spans.
    pub span_marker: u64,
    /// The secret by which a router recognizes what its predecessor has issued: connection IDs and tokens of QUIC.
    pub quic_secret: [u8; 32],
}

/// A generation that a router submits requests to.
#[derive(Debug, Serialize, Deserialize)]
pub struct GenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// The generation to which it belongs, which comes later, if it is the pool of one of several worker scripts.
    pub pool_of: Option<u64>,
    /// The numbers of its pools, in the order of the worker scripts, if it has several. They have come before.
    pub pools: Vec<u64>,
    /// Its application's name.
    pub application: String,
    /// The size of its channel.
    pub geometry: Geometry,
    /// The number of idle workers below which the router sends [`FromRouter::WorkersWanted`]; the
    /// router also sends it when requests wait and no worker is idle. `None`: never.
    pub spare_workers: Option<u32>,
    /// The limit of a request's run time, in milliseconds: [`FromRouter::Overdue`].
    pub timeout_ms: Option<u64>,
    /// The limit of a request's wait for a worker, in milliseconds.
    pub queue_timeout_ms: u64,
    /// SERVER_SOFTWARE, if the application's environment sets it.
    pub server_software: Option<String>,
    /// Whether the file of the application's `stderr` is the last descriptor.
    pub has_log: bool,
}

/// A generation of an HTTP application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpGenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// The user that listens at its addresses. Paths of Unix sockets belong to the application, and could lead to the socket
    /// of another one; another user could bind a port.
    pub listening_user: Option<u32>,
    /// The address of each process, and whether it gets requests.
    pub processes: Vec<(String, bool)>,
}

/// A generation of a RoadRunner application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoadRunnerGenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// The number of its processes.
    pub processes: u16,
    /// The limit of a request's run time, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The limit of a request's wait for a worker, in milliseconds.
    pub queue_timeout_ms: u64,
    /// The number of requests after which a worker is replaced.
    pub requests: Option<u32>,
    /// The time without requests after which a worker is replaced, in milliseconds.
    pub idle_ttl_ms: Option<u64>,
    /// The folder for uploaded files. The router writes there, and the application's user reads.
    pub upload_folder: PathBuf,
}

/// A generation of a FastCGI application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastCgiGenerationBoot {
    /// Its number, unique for the life of the supervisor.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// Where its server listens.
    pub addresses: Vec<String>,
    /// The scripts, with the folder in which the server has them if that is another one.
    pub targets: Vec<(TargetPaths, Option<PathBuf>)>,
    /// Further variables of each request.
    pub parameters: BTreeMap<String, String>,
    /// The most connections to each address.
    pub connections: u16,
    /// How long a connection may wait for another request, in milliseconds.
    pub keep_alive_ms: u64,
    /// The limit of a request's run time, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The limit of a request's wait for a connection, in milliseconds.
    pub queue_timeout_ms: u64,
}

/// The name of a worker of RoadRunner: no other worker of its generation has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoadRunnerWorker {
    /// The index of the process.
    pub index: u16,
    /// The number of its start.
    pub start: u32,
}

/// Why the router sends a worker of RoadRunner no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseReason {
    /// It has reached a limit: it must be ordered to exit.
    Retired,
    /// It asked to be replaced.
    OnRequest,
    /// It has closed a pipe: it is dead, or must be killed.
    Closed,
    /// It broke a rule of the protocol, or took too long: it must be killed.
    Discarded,
}

/// A configuration, without its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterConfiguration {
    /// Its number: later ones are larger.
    pub version: u64,
    /// The numbers of its listening sockets, in the order of its text. Other sockets are closed.
    pub listeners: Vec<u64>,
    /// The sockets of QUIC, by the listeners that have HTTP/3. Other sockets are closed.
    pub quic_sockets: BTreeMap<u64, u64>,
    /// The generation of each application. Other generations are released.
    pub generations: BTreeMap<String, u64>,
    /// Whether an access log is among the descriptors.
    pub access_log: bool,
}

/// From the router to the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromRouter {
    /// All threads serve with this configuration.
    Configured {
        /// Its number.
        version: u64,
    },
    /// This configuration can't be served; the former one stays active.
    Rejected {
        /// Its number.
        version: u64,
        /// The reason, as a sentence.
        reason: String,
    },
    /// The warm-up of a generation has ended.
    WarmUpEnded {
        /// The generation.
        generation: u64,
        /// The reason that the generation must not become active, as a sentence; `None` after a successful warm-up.
        failure: Option<String>,
    },
    /// No request uses this generation, and none will.
    Released {
        /// The generation.
        generation: u64,
    },
    /// A worker of this generation broke the channel's rules: all its workers must be replaced.
    Violation {
        /// The generation.
        generation: u64,
        /// The rule.
        rule: String,
    },
    /// Fewer workers are idle than `spare_workers`, or requests wait and none is idle.
    WorkersWanted {
        /// The generation.
        generation: u64,
        /// The number of requests that wait for a worker.
        waiting: u64,
    },
    /// A request exceeds `timeout_ms`: it must be ended. Sent again after a while if it still runs.
    Overdue {
        /// The generation.
        generation: u64,
        /// The worker.
        worker: WorkerId,
        /// The request: its slot, and the slot's sequence number.
        request: (u16, u32),
    },
    /// A worker of RoadRunner gets no more requests of this router.
    RoadRunnerWorkerReleased {
        /// The generation.
        generation: u64,
        /// The worker.
        worker: RoadRunnerWorker,
        /// The reason.
        reason: ReleaseReason,
    },
    /// It cannot accept connections any more, because another process has changed its limits: it must be replaced.
    CannotAccept {
        /// The reason, as a phrase.
        reason: String,
    },
    /// A client asks for a name without a certificate, on a listener that obtains certificates on demand. Sent again after
    /// a while.
    UnknownName {
        /// The name, in lower case. A stranger chooses it.
        name: String,
    },
    /// Challenges are answered with this set.
    AnswersChallenges {
        /// Its number.
        version: u64,
    },
    /// The answer to [`ToRouter::ReportLoad`]. A long one comes in several parts: see
    /// [`router_load`](crate::messages::router_load).
    Load(RouterLoad),
}

/// The load of a router. The maps may lack entries that are zero, and servers without connections and trouble.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterLoad {
    /// Connections of clients accepted since it started.
    pub connections_accepted: u64,
    /// The closed ones among these.
    pub connections_closed: u64,
    /// Connections on which a request is under way.
    pub connections_active: u64,
    /// Requests since it started.
    pub requests_total: u64,
    /// Requests under way or waiting, by generation.
    pub requests_active: BTreeMap<u64, u64>,
    /// Requests that wait for a worker, by generation.
    pub requests_waiting: BTreeMap<u64, u64>,
    /// Requests that were answered 503 by the queue, or because requests of the same kind kill workers, by generation.
    pub requests_rejected: BTreeMap<u64, u64>,
    /// Servers of upstreams that get no requests, by upstream and address.
    pub upstream_troubles: BTreeMap<String, BTreeMap<String, ServerTrouble>>,
    /// The requests of servers of upstreams: of all that drain, and of those that have some.
    pub upstream_active: BTreeMap<String, BTreeMap<String, u64>>,
    /// The addresses of FastCGI applications, by generation and address.
    pub fastcgi_servers: BTreeMap<u64, BTreeMap<String, FastCgiServerLoad>>,
    /// Another part of this report follows.
    pub more: bool,
}

/// The connections of a router to an address of a FastCGI application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastCgiServerLoad {
    /// All of them.
    pub connections: u64,
    /// The idle ones among them, which wait for another request.
    pub idle: u64,
    /// Why there are no new ones, as a phrase; `None` if there may be.
    pub trouble: Option<String>,
}

/// Why a server of an upstream gets no requests while other servers of it do. The text is the reason, as a phrase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerTrouble {
    /// Requests to it have failed, and none has succeeded since.
    Down(String),
    /// Checks of its health have failed.
    Unhealthy(String),
}

// === impl ServerTrouble ===

impl ServerTrouble {
    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            ServerTrouble::Down(reason) | ServerTrouble::Unhealthy(reason) => reason,
        }
    }

    /// With another reason, made from this one.
    #[must_use]
    pub fn map(self, change: impl FnOnce(String) -> String) -> ServerTrouble {
        match self {
            ServerTrouble::Down(reason) => ServerTrouble::Down(change(reason)),
            ServerTrouble::Unhealthy(reason) => ServerTrouble::Unhealthy(change(reason)),
        }
    }
}
