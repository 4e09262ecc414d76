//! `GET /status`: what howdah does, in NGINX Unit's form and order. Members that Unit does not have are marked as ours.

use crate::control::Control;
use crate::control::processes::acme::DomainStatus;
use crate::generation::Generation;
use crate::generation::fastcgi::FastCgiGeneration;
use crate::generation::php::PhpGeneration;
use crate::generation::php::worker_pool::PoolReport;
use crate::plan::php::executables::{self, Php};
use crate::policy::sizing::Reason;
use howdah_config::{Configuration, Endpoint, UpstreamServer};
use howdah_protocol::messages::router::{FastCgiServerLoad, RouterLoad, ServerTrouble};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The status. Its members are sent in this order.
#[derive(Debug, Serialize)]
pub struct Status {
    modules: Modules,
    connections: Connections,
    requests: Requests,
    applications: BTreeMap<String, ApplicationStatus>,
    /// Ours: former generations that still finish requests.
    draining: BTreeMap<String, Draining>,
    /// Ours: which servers of upstreams get requests.
    upstreams: BTreeMap<String, UpstreamStatus>,
    /// Ours: the domains whose certificates howdah obtains.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    certificates: BTreeMap<String, DomainStatus>,
}

#[derive(Debug, Serialize)]
struct UpstreamStatus {
    servers: BTreeMap<String, ServerStatus>,
}

#[derive(Debug, Serialize)]
struct ServerStatus {
    state: ServerState,
    /// Its requests, with those whose response is not complete; none if their number is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<u64>,
    /// Why it gets no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ServerState {
    Up,
    /// Requests to it have failed, and none has succeeded since.
    Down,
    /// Checks of its health have failed.
    Unhealthy,
    /// It drains, or its weight is 0.
    Drained,
}

#[derive(Debug, Default, Serialize)]
struct Draining {
    generations: u64,
    processes: usize,
}

#[derive(Debug, Serialize)]
struct Modules {
    /// One, or several: as Unit has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    php: Option<Versions>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Versions {
    One(Module),
    Several(Vec<Module>),
}

/// A PHP that can be used.
#[derive(Debug, Serialize)]
struct Module {
    version: String,
    /// Its executable.
    lib: PathBuf,
}

#[derive(Debug, Serialize)]
struct Connections {
    accepted: u64,
    active: u64,
    idle: u64,
    closed: u64,
}

#[derive(Debug, Serialize)]
struct Requests {
    total: u64,
}

#[derive(Debug, Default, Serialize)]
struct ApplicationStatus {
    processes: ProcessesStatus,
    requests: ActiveRequests,
    /// Ours: the generation that gets its requests; none if it does not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<GenerationStatus>,
    /// Ours: the addresses of a FastCGI application.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    servers: BTreeMap<String, FastCgiServerStatus>,
    /// Ours: its worker scripts, if it has several. Their processes and requests are among those above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    worker_scripts: Vec<WorkerScriptStatus>,
    /// Ours: why it does not start. Its requests are answered 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Ours: it drains. Its requests are answered 503.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    drained: bool,
}

/// Each start of an application has another number: a deploy, a restart, a change of its options.
#[derive(Debug, Serialize)]
struct GenerationStatus {
    number: u64,
    /// Where the paths of the configuration lead.
    release: BTreeMap<String, String>,
}

/// A worker script, or the requests in classic mode beside it.
#[derive(Debug, Serialize)]
struct WorkerScriptStatus {
    /// Its path below the root; `None` is classic mode.
    script: Option<String>,
    processes: ProcessesStatus,
    requests: ActiveRequests,
}

#[derive(Debug, Serialize)]
struct FastCgiServerStatus {
    state: ServerState,
    /// howdah's connections to it.
    connections: u64,
    /// The idle ones among them, which wait for another request.
    idle: u64,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct ProcessesStatus {
    running: usize,
    starting: usize,
    idle: usize,
    /// Ours: the reason for their number, with `"processes": "auto"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto: Option<Auto>,
}

#[derive(Debug, Serialize)]
struct Auto {
    /// All of it, in a sentence.
    why: String,
    cores: f64,
    waiting_share: Option<f64>,
    memory_allows: Option<usize>,
    max: usize,
}

#[derive(Debug, Default, Serialize)]
struct ActiveRequests {
    active: u64,
    /// Ours: in the queue.
    waiting: u64,
    /// Ours: answered 503 by the queue, or because requests of the same kind kill workers.
    refused: u64,
}

/// The status, with the router's latest numbers.
pub fn of(control: &Control) -> Status {
    let load = control.runtime.router.load();
    let open = load.connections_accepted.saturating_sub(load.connections_closed);
    let mut applications = BTreeMap::new();
    for (name, id) in &control.served().generations {
        let Some(generation) = control.runtime.generations.get(*id) else { continue };
        let mut pools: Vec<_> = generation.as_php().map(PhpGeneration::pools).into_iter().flatten().collect();
        let (processes, requests) = match pools.len() {
            0 => {
                let requests = ActiveRequests::of(*id, load);
                (ProcessesStatus::new(generation.process_counts(), &requests, None), requests)
            }
            1 => status_of_pool(pools.remove(0), load),
            _ => Default::default(),
        };
        let mut status = ApplicationStatus {
            processes,
            requests,
            generation: Some(GenerationStatus::of(generation)),
            servers: fastcgi_servers(generation, load),
            worker_scripts: Vec::new(),
            failure: None,
            drained: false,
        };
        for pool in pools {
            let script = pool.script.map(str::to_owned);
            let (processes, requests) = status_of_pool(pool, load);
            status.processes.add(&processes);
            status.requests.add(&requests);
            status.worker_scripts.push(WorkerScriptStatus { script, processes, requests });
        }
        applications.insert(name.clone(), status);
    }
    for (name, reason) in &control.served().failures {
        let status = ApplicationStatus { failure: Some(reason.clone()), ..ApplicationStatus::default() };
        applications.insert(name.clone(), status);
    }
    for name in &control.served().configuration.drained {
        applications.insert(name.clone(), ApplicationStatus { drained: true, ..ApplicationStatus::default() });
    }
    let mut draining = BTreeMap::<String, Draining>::new();
    let is_former = |generation: &&Generation| control.changes.is_former(generation.id());
    for generation in control.runtime.generations.iter().filter(is_former) {
        let former = draining.entry(generation.name().to_owned()).or_default();
        former.generations += 1;
        former.processes += generation.process_counts().0;
    }
    Status {
        modules: Modules { php: versions(control) },
        connections: Connections {
            accepted: load.connections_accepted,
            active: load.connections_active,
            idle: open.saturating_sub(load.connections_active),
            closed: load.connections_closed,
        },
        requests: Requests { total: load.requests_total },
        applications,
        draining,
        upstreams: upstreams(&control.served().configuration, load),
        certificates: control.runtime.acme.status(&control.runtime.certificates, Instant::now()),
    }
}

/// The processes and requests of a pool of workers.
fn status_of_pool(pool: PoolReport<'_>, load: &RouterLoad) -> (ProcessesStatus, ActiveRequests) {
    let requests = ActiveRequests::of(pool.id, load);
    (ProcessesStatus::new(pool.counts, &requests, pool.reason), requests)
}

// === impl GenerationStatus ===

impl GenerationStatus {
    fn of(generation: &Generation) -> GenerationStatus {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let links = generation.release().led_to.iter().map(|pin| (text(&pin.link), text(&pin.leads_to)));
        GenerationStatus { number: generation.id(), release: links.collect() }
    }
}

// === impl ProcessesStatus ===

impl ProcessesStatus {
    fn new((running, starting): (usize, usize), requests: &ActiveRequests, reason: Option<Reason>) -> ProcessesStatus {
        let idle = running.saturating_sub(usize::try_from(requests.active).unwrap_or(usize::MAX));
        ProcessesStatus { running, starting, idle, auto: reason.map(Auto::from) }
    }

    fn add(&mut self, other: &ProcessesStatus) {
        self.running += other.running;
        self.starting += other.starting;
        self.idle += other.idle;
    }
}

// === impl ActiveRequests ===

impl ActiveRequests {
    /// Of a generation, or of a pool, with this number.
    fn of(id: u64, load: &RouterLoad) -> ActiveRequests {
        let of_router = |numbers: &BTreeMap<u64, u64>| numbers.get(&id).copied().unwrap_or_default();
        ActiveRequests {
            active: of_router(&load.requests_active),
            waiting: of_router(&load.requests_waiting),
            refused: of_router(&load.requests_rejected),
        }
    }

    fn add(&mut self, other: &ActiveRequests) {
        self.active += other.active;
        self.waiting += other.waiting;
        self.refused += other.refused;
    }
}

/// The addresses of a FastCGI application.
fn fastcgi_servers(generation: &Generation, load: &RouterLoad) -> BTreeMap<String, FastCgiServerStatus> {
    let loads = load.fastcgi_servers.get(&generation.id());
    let addresses = generation.as_fastcgi().map(FastCgiGeneration::addresses).unwrap_or_default();
    let status = |address: &Endpoint| {
        let address = address.to_string();
        let load = loads.and_then(|loads| loads.get(&address)).cloned().unwrap_or_default();
        let state = if load.trouble.is_some() { ServerState::Down } else { ServerState::Up };
        let FastCgiServerLoad { connections, idle, trouble } = load;
        (address, FastCgiServerStatus { state, connections, idle, reason: trouble })
    };
    addresses.iter().map(status).collect()
}

fn upstreams(configuration: &Configuration, load: &RouterLoad) -> BTreeMap<String, UpstreamStatus> {
    let status = |name: &str, server: &UpstreamServer| {
        let address = server.endpoint.to_string();
        let trouble = load.upstream_troubles.get(name).and_then(|servers| servers.get(&address));
        let state = match trouble {
            _ if server.weight == 0.0 => ServerState::Drained,
            None => ServerState::Up,
            Some(ServerTrouble::Down(_)) => ServerState::Down,
            Some(ServerTrouble::Unhealthy(_)) => ServerState::Unhealthy,
        };
        let active = load.upstream_active.get(name).and_then(|servers| servers.get(&address)).copied();
        // The router reports the number of a server that drains even if it is 0.
        let active = if matches!(state, ServerState::Drained) { active } else { active.or(Some(0)) };
        (address, ServerStatus { state, active, reason: trouble.map(|trouble| trouble.reason().to_owned()) })
    };
    let upstreams = configuration.upstreams.iter().map(|(name, upstream)| {
        let servers = upstream.servers.iter().map(|server| status(name, server)).collect();
        (name.clone(), UpstreamStatus { servers })
    });
    upstreams.collect()
}

/// The installed PHPs. The full version of a PHP is known while an application runs on it.
fn versions(control: &Control) -> Option<Versions> {
    let full = |php: &Php| {
        let mut running = control
            .runtime
            .generations
            .iter()
            .filter_map(Generation::as_php)
            .filter(|generation| generation.php() == php);
        running.find_map(|generation| Some(generation.loaded()?.version.clone()))
    };
    let module =
        |php: Php| Module { version: full(&php).unwrap_or_else(|| php.version.to_string()), lib: php.executable };
    let mut modules: Vec<_> = executables::known().into_iter().map(module).collect();
    match modules.len() {
        0 | 1 => modules.pop().map(Versions::One),
        _ => Some(Versions::Several(modules)),
    }
}

impl From<Reason> for Auto {
    fn from(reason: Reason) -> Auto {
        Auto {
            why: reason.to_string(),
            cores: reason.cores,
            waiting_share: reason.waiting_share,
            memory_allows: reason.memory_allows,
            max: reason.max,
        }
    }
}
