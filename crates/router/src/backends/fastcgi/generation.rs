//! The generation of a FastCGI application, as the router's threads share it: its places, its queue, and the addresses that
//! cannot be reached.
//!
//! If an address cannot be reached, one line in the log reports it. A task tries it again until it can be; requests wait
//! meanwhile, or go to the other addresses.

use crate::backends::admission::{Admission, Admitted, Arrival, Line, Waiting, WaitingRequest};
use crate::backends::connecting::{self, KnownAddresses, NotConnected, PathOwner};
use crate::backends::fastcgi::connection::Connection;
use crate::backends::fastcgi::places::{Place, Places};
use crate::product;
use crate::report::{ReportOnDrop, SupervisorLink};
use crate::response::failure::Failure;
use howdah_config::Endpoint;
use howdah_protocol::messages::generation_paths::TargetPaths;
use howdah_protocol::messages::router::{FastCgiGenerationBoot, FastCgiServerLoad, FromRouter};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

/// A generation, as the router's threads share it.
pub struct FastCgiGeneration {
    /// Its number.
    pub id: u64,
    /// Its application's name.
    pub application: String,
    /// Further variables of each request.
    pub parameters: BTreeMap<String, String>,
    /// How long a request may take.
    pub timeout: Option<Duration>,
    targets: Vec<RemoteTarget>,
    /// How long a connection may wait for another request.
    keep_alive: Duration,
    admission: Admission,
    places: Arc<Places>,
    /// For each address, until when a task tries it again. A task that ended with its thread is replaced after that.
    probes: Vec<Mutex<Option<Instant>>>,
    /// Reports to the supervisor that the generation is no longer used.
    #[expect(dead_code, reason = "its drop sends the report")]
    released: ReportOnDrop,
}

/// The scripts of a target, and where the server has them.
#[derive(Debug)]
pub struct RemoteTarget {
    /// The scripts, as howdah sees them.
    pub paths: TargetPaths,
    /// Their folder, as the server sees it.
    pub root: PathBuf,
}

thread_local! {
    /// The addresses of host names.
    static KNOWN: std::cell::RefCell<BTreeMap<Endpoint, Rc<KnownAddresses>>> = const { std::cell::RefCell::new(BTreeMap::new()) };
}

/// How long a TCP connection, or the file system of a Unix socket, may take. While the backlog of a Unix socket is full,
/// requests wait as long as they may.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A Unix socket that connects nothing for longer than its file system may take has a full backlog.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause before an address is tried again. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

// === impl FastCgiGeneration ===

impl FastCgiGeneration {
    /// A generation without connections.
    ///
    /// # Errors
    /// When an address is not valid.
    pub fn new(boot: FastCgiGenerationBoot, supervisor: &SupervisorLink) -> io::Result<FastCgiGeneration> {
        let endpoint =
            |address: &String| address.parse().map_err(|error| io::Error::other(format!("{address}: {error}")));
        let endpoints: Vec<Endpoint> = boot.addresses.iter().map(endpoint).collect::<io::Result<_>>()?;
        let target = |(paths, root): (TargetPaths, Option<PathBuf>)| {
            let root = root.unwrap_or_else(|| paths.root.clone());
            RemoteTarget { paths, root }
        };
        Ok(FastCgiGeneration {
            id: boot.id,
            admission: Admission::new(&boot.application, Duration::from_millis(boot.queue_timeout_ms)),
            application: boot.application,
            parameters: boot.parameters,
            timeout: boot.timeout_ms.map(Duration::from_millis),
            targets: boot.targets.into_iter().map(target).collect(),
            keep_alive: Duration::from_millis(boot.keep_alive_ms),
            probes: endpoints.iter().map(|_| Mutex::default()).collect(),
            places: Arc::new(Places::new(endpoints, boot.connections.into())),
            released: supervisor.send_on_drop(FromRouter::Released { generation: boot.id }),
        })
    }

    /// The target with this name.
    pub fn target(&self, name: Option<&str>) -> Option<&RemoteTarget> {
        self.targets.iter().find(|target| target.paths.name.as_deref() == name)
    }

    /// SERVER_SOFTWARE for its scripts.
    pub fn server_software(&self) -> &str {
        product::SOFTWARE
    }

    /// Whether the server is asked to keep connections open.
    pub fn keeps_connections(&self) -> bool {
        !self.keep_alive.is_zero()
    }

    // Requests

    /// Waits for a connection: one that was used before, if the request may have it, or a new one.
    ///
    /// # Errors
    /// 503 when no connection is free in time.
    pub async fn connect(
        self: &Arc<Self>,
        admitted: Admitted,
        may_reuse: bool,
    ) -> Result<(Place, Connection), Failure> {
        let mut request = WaitingRequest::new(&**self);
        while let Some(mut place) = request.turn(admitted).await {
            let kept = place.take_connection().and_then(Connection::on_this_thread).filter(|_| may_reuse);
            if let Some(kept) = kept {
                place.answered();
                request.end();
                return Ok((place, kept));
            }
            match self.admission.in_time(admitted, open(&place)).await {
                Some(Ok(connection)) => {
                    place.connected();
                    request.end();
                    return Ok((place, connection));
                }
                Some(Err(reason)) => {
                    let server = place.server;
                    // Before the place is free: no other request must get it.
                    self.unreachable(server, reason);
                    drop(place);
                }
                None => break,
            }
        }
        request.end();
        Err(self.reject_late().await)
    }

    /// The server has answered a request.
    pub fn finished(&self) {
        self.admission.finished();
    }

    /// Whether the configuration names this generation. If not, it has its last requests: a connection that waited for
    /// another one would keep a process of the server from the generation that follows.
    pub fn set_current(&self, is_current: bool) {
        self.places.keep(is_current);
    }

    /// Closes connections that have waited for too long, and tries addresses that no task tries any more.
    pub fn sweep(self: &Arc<Self>) {
        self.places.close_idle(self.keep_alive, Instant::now());
        for server in 0..self.probes.len() {
            if !self.places.is_reachable(server) {
                self.probe(server);
            }
        }
    }

    // Addresses that cannot be reached

    fn unreachable(self: &Arc<Self>, server: usize, reason: String) {
        if self.places.unreachable(server, reason.clone(), Instant::now()) {
            let (address, application) = (self.places.endpoint(server), &self.application);
            tracing::error!(%address, application, "cannot connect to a FastCGI server: {reason}; trying again; requests wait, or go to another address");
        }
        self.probe(server);
    }

    /// Has a task try an address until it can be reached, unless one does.
    fn probe(self: &Arc<Self>, server: usize) {
        if !self.begin_probe(server, FIRST_PAUSE, false) {
            return;
        }
        let generation = Arc::downgrade(self);
        spawn_local(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                sleep(pause).await;
                // A weak reference: the task must not keep alive a generation that is no longer used.
                let Some(endpoint) = generation.upgrade().map(|generation| generation.places.endpoint(server)) else {
                    return;
                };
                let connected = match endpoint {
                    // A full backlog is one of a server that runs.
                    Endpoint::Unix(_) | Endpoint::Abstract(_) => {
                        timeout(BACKLOG_TIMEOUT, open_endpoint(&endpoint)).await.unwrap_or(Ok(None))
                    }
                    _ => open_endpoint(&endpoint).await,
                };
                if probed(&generation, server, connected.map(drop), &mut pause) {
                    return;
                }
            }
        });
    }

    /// Notes that a task tries an address in this time. `false` if another one does.
    fn begin_probe(&self, server: usize, pause: Duration, is_same: bool) -> bool {
        let now = Instant::now();
        let mut until = self.probes[server].lock().unwrap_or_else(PoisonError::into_inner);
        if !is_same && until.is_some_and(|until| until > now) {
            return false;
        }
        *until = Some(now + pause + CONNECT_TIMEOUT * 2);
        true
    }

    fn end_probe(self: &Arc<Self>, server: usize) {
        *self.probes[server].lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(trouble) = self.places.reachable(server) {
            let (address, application) = (self.places.endpoint(server), &self.application);
            let seconds = trouble.since.elapsed().as_secs_f64();
            tracing::warn!(%address, application, "a FastCGI server can be reached again, after {seconds:.1} s");
        }
    }

    // Numbers

    /// How many requests the server has, or wait for a connection.
    pub fn active_requests(&self) -> u64 {
        self.admission.active()
    }

    /// How many requests wait for a connection.
    pub fn waiting_requests(&self) -> u64 {
        self.admission.waiting()
    }

    /// How many requests were answered 503 by the queue.
    pub fn rejected_requests(&self) -> u64 {
        self.admission.rejected()
    }

    /// The connections to each address.
    pub fn load(&self) -> BTreeMap<String, FastCgiServerLoad> {
        self.places.load()
    }
}

impl Line for FastCgiGeneration {
    type Turn = Place;

    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn arrival(&self) -> Arrival {
        let places = self.places.count();
        Arrival { waiting: self.waiting_requests(), workers: places, places }
    }

    fn join(&self, since: Instant) -> Result<Place, Waiting<Place>> {
        self.places.take(since)
    }

    fn leave(&self, waiting: Waiting<Place>) {
        self.places.leave(waiting);
    }
}

/// Takes the result of a probe. Returns whether it was the last one.
fn probed(
    generation: &Weak<FastCgiGeneration>,
    server: usize,
    connected: Result<(), String>,
    pause: &mut Duration,
) -> bool {
    let Some(generation) = generation.upgrade() else { return true };
    match connected {
        Ok(()) => {
            generation.end_probe(server);
            true
        }
        Err(reason) => {
            generation.places.unreachable(server, reason, Instant::now());
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            !generation.begin_probe(server, *pause, true)
        }
    }
}

/// A connection to the address of a place.
async fn open(place: &Place) -> Result<Connection, String> {
    match open_endpoint(place.endpoint()).await? {
        Some(connection) => Ok(connection),
        None => Err("it does not accept connections".to_owned()),
    }
}

async fn open_endpoint(endpoint: &Endpoint) -> Result<Option<Connection>, String> {
    let known = KNOWN.with_borrow_mut(|known| Rc::clone(known.entry(endpoint.clone()).or_default()));
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let connect = connecting::connect(endpoint, PathOwner::Operator, &known, deadline);
    let late = || format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
    let connected = match endpoint {
        Endpoint::Unix(_) | Endpoint::Abstract(_) => connect.await,
        _ => timeout(CONNECT_TIMEOUT, connect).await.map_err(|_| late())?,
    };
    let connected = connected.map_err(|error| match error {
        NotConnected::System(error) => error,
        NotConnected::File(_) => io::Error::other(error.to_string()),
    });
    match connected {
        Ok(transport) => Ok(Some(Connection::new(transport))),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(late()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "{error}; the router's user may not write to the socket: set \"settings\": {{\"user\"}} to the user of FPM's \
             listen.owner, or listen.acl_users in FPM's pool"
        )),
        Err(error) => Err(error.to_string()),
    }
}
