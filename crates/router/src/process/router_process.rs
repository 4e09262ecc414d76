//! The router's process, as the supervisor started it: it takes its boot message, drops its privileges, starts its
//! threads, and then only passes the supervisor's messages on to them.
//!
//! The end of file of the control socket is the supervisor's death: the process exits with it. An event-loop thread that
//! ends by itself takes the process with it, and the supervisor starts another.

use crate::access::{ConnectionLimits, RateLimits};
use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::{SharedGeneration, WarmUpOrder};
use crate::backends::proxy::{HealthStates, HttpGeneration, UpstreamTlsConfigs};
use crate::backends::roadrunner::RoadRunnerGeneration;
use crate::dispatch::{Pins, Snapshot};
use crate::file_access::FILE_THREADS;
use crate::net::accept::Listening;
use crate::net::accept_turn::AcceptTurn;
use crate::net::connection_limit::ConnectionLimit;
use crate::net::load::Load;
use crate::net::tls::{CertificatePems, OnDemandCertificates, OnDemandPems, TlsConfigs, challenges};
use crate::process::access_change::Authorities;
use crate::process::command::{Reconfiguration, ThreadCommand};
use crate::process::generations::Generations;
use crate::process::prepared::{PreparedConfiguration, prepare};
use crate::process::thread::{self, Setup};
use crate::report::{AbortOnPanic, OncePerMinute, SupervisorLink, inject, write_last_lines};
use crate::request::record::application_log::ApplicationLog;
use crate::resources::slow_work::PROCESSOR_THREADS;
use howdah_blocking_work::{NAMES, mounts};
use howdah_channel::{Counters, RouterEnd};
use howdah_config::Configuration;
use howdah_protocol::child::inherited::CONTROL_FD;
use howdah_protocol::child::inherited::take_inherited;
use howdah_protocol::child::parent_death::die_with_supervisor;
use howdah_protocol::messages::acme::ChallengeAnswers;
use howdah_protocol::messages::generation_paths::GenerationPaths;
use howdah_protocol::messages::router::{
    FromRouter, GenerationBoot, RouterBoot, RouterConfiguration, RouterLoad, ToRouter,
};
use howdah_protocol::messages::warm_up::WarmUpRequest;
use howdah_protocol::sockets::control_socket::ControlSocket;
use howdah_protocol::sockets::descriptor_reserve::{CutOff, DescriptorReserve};
use howdah_telemetry::pipe::SpanWriter;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{SocketType, sockopt};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;

struct RouterProcess {
    control: Arc<ControlSocket>,
    /// Clients cannot use these descriptors.
    reserve: DescriptorReserve,
    shortages: OncePerMinute,
    supervisor: SupervisorLink,
    threads: Vec<JoinHandle<()>>,
    commands: Vec<mpsc::UnboundedSender<ThreadCommand>>,
    loads: Arc<[Arc<Load>]>,
    listeners: BTreeMap<u64, Arc<Listening>>,
    quic_sockets: BTreeMap<u64, UdpSocket>,
    tls: TlsConfigs,
    on_demand: Arc<OnDemandCertificates>,
    /// The listeners with TLS of the active configuration, in its order.
    tls_listeners: Vec<u64>,
    upstream_tls: UpstreamTlsConfigs,
    upstream_health: HealthStates,
    /// The threads have it.
    configured: Option<Configured>,
    generations: Generations,
}

/// The pause between two attempts to receive a message for which no descriptors are free.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

type Descriptors = std::vec::IntoIter<OwnedFd>;

/// The last configuration, and what the next one takes over if its routes are the same.
struct Configured {
    configuration: Arc<Configuration>,
    rate_limits: Arc<RateLimits>,
    connection_limits: ConnectionLimits,
}

/// Runs as a router until the supervisor stops it.
///
/// # Errors
/// When the process cannot start, or a message of the supervisor is not valid.
pub fn run() -> io::Result<()> {
    let control = Arc::new(ControlSocket::from(take_inherited(CONTROL_FD)?));
    die_with_supervisor(&control)?;
    let Some((ToRouter::Boot(boot), descriptors)) = control.wait_for_long()? else {
        return Err(io::Error::other("the supervisor sent no boot message"));
    };
    let reserve = DescriptorReserve::keep()?;
    boot.identity.assume(boot.user.as_deref(), boot.added_group)?;
    die_with_supervisor(&control)?;
    let mut descriptors = descriptors.into_iter();
    let memory = next(&mut descriptors)?;
    howdah_telemetry::pipe::set_writer(SpanWriter::new(next(&mut descriptors)?, boot.span_marker)?);
    let counters = Arc::new(Counters::map(memory, howdah_metrics::layout::words(boot.threads))?);
    let mut process =
        RouterProcess::start(&control, &boot, reserve, &counters).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::other(format!("cannot start its threads ({error}); see TasksMax or pids.max"))
            }
            _ => error,
        })?;
    while let Some((message, descriptors)) = process.next_message()? {
        if matches!(message, ToRouter::Drain) {
            process.send_to_all(|| ThreadCommand::Drain);
            return process.drain();
        }
        process.handle(message, descriptors.into_iter())?;
    }
    Ok(())
}

// === impl RouterProcess ===

impl RouterProcess {
    fn start(
        control: &Arc<ControlSocket>,
        boot: &RouterBoot,
        reserve: DescriptorReserve,
        counters: &Arc<Counters>,
    ) -> io::Result<RouterProcess> {
        let limit = ConnectionLimit::of_descriptors(reserve.limit());
        let supervisor = SupervisorLink::new(Arc::clone(control))?;
        let on_demand = Arc::new(OnDemandCertificates::new(supervisor.clone()));
        let count = boot.threads.max(1);
        let (commands, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let loads: Arc<[Arc<Load>]> = (0..count).map(|_| Arc::new(Load::default())).collect();
        let turn = AcceptTurn::new(count.into());
        mounts::watch()?;
        for pool in [&FILE_THREADS, &PROCESSOR_THREADS, &NAMES] {
            pool.start()?;
        }
        let mut threads = Vec::new();
        for (index, receiver) in (0..count).zip(receivers) {
            let setup = Setup {
                index,
                loads: Arc::clone(&loads),
                turn: turn.of(index.into()),
                limit: Arc::clone(&limit),
                descriptors: reserve.limit(),
                counters: Arc::clone(counters),
                quic_secret: boot.quic_secret,
                on_demand: Arc::clone(&on_demand),
                supervisor: supervisor.clone(),
                commands: receiver,
            };
            threads.push(std::thread::Builder::new().name(format!("event loop {index}")).spawn(|| {
                let _abort = AbortOnPanic;
                if let Err(error) = thread::run(setup) {
                    tracing::error!(%error, "an event loop cannot start; the router ends");
                    write_last_lines();
                    std::process::exit(1);
                }
            })?);
        }
        Ok(RouterProcess {
            tls: TlsConfigs::new(Arc::clone(&on_demand)),
            on_demand,
            supervisor,
            control: Arc::clone(control),
            reserve,
            shortages: OncePerMinute::new(),
            threads,
            commands,
            loads,
            listeners: BTreeMap::new(),
            quic_sockets: BTreeMap::new(),
            tls_listeners: Vec::new(),
            upstream_tls: UpstreamTlsConfigs::default(),
            upstream_health: HealthStates::default(),
            configured: None,
            generations: Generations::default(),
        })
    }

    /// The supervisor's next message. One that lacks descriptors stays in the socket until some are free.
    fn next_message(&self) -> io::Result<Option<(ToRouter, Vec<OwnedFd>)>> {
        loop {
            match self.control.wait_for_long_with(&self.reserve) {
                Err(error) if CutOff::is(&error) => self.wait_for_descriptors(&error),
                received => return received,
            }
        }
    }

    fn wait_for_descriptors(&self, error: &io::Error) {
        if self.shortages.is_due("") {
            tracing::error!(
                %error,
                "a message of the supervisor waits until descriptors are closed; raise their limit with `ulimit -Hn`, or \
                 LimitNOFILE= in the unit of systemd"
            );
        }
        std::thread::sleep(SHORTAGE_PAUSE);
    }

    fn handle(&mut self, message: ToRouter, mut descriptors: Descriptors) -> io::Result<()> {
        match message {
            ToRouter::AddGeneration(boot) => self.add_generation(boot, descriptors)?,
            ToRouter::AddListener { id, path } => {
                let socket = next(&mut descriptors)?;
                if sockopt::socket_type(&socket)? == SocketType::DGRAM {
                    self.quic_sockets.insert(id, socket.into());
                } else {
                    self.listeners.insert(id, Arc::new(Listening::new(socket, path)?));
                }
            }
            ToRouter::AddHttpGeneration(boot) => {
                self.generations.http.add(HttpGeneration::new(&boot, &self.supervisor)?);
            }
            ToRouter::HttpProcess { generation, index, address, is_ready } => {
                if let Some(known) = self.generations.http.find(generation) {
                    known.set_ready(index, &address, is_ready)?;
                }
            }
            ToRouter::AddRoadRunnerGeneration(boot) => {
                self.generations.roadrunner.add(RoadRunnerGeneration::new(boot, &self.supervisor));
            }
            ToRouter::AddFastCgiGeneration(boot) => {
                self.generations.fastcgi.add(FastCgiGeneration::new(boot, &self.supervisor)?);
            }
            ToRouter::RoadRunnerWorkerReady { generation, worker } => {
                if let Some(known) = self.generations.roadrunner.find(generation) {
                    known.worker_ready(worker, descriptors)?;
                }
            }
            ToRouter::RoadRunnerWorkerGone { generation, worker } => {
                self.generations.roadrunner.find(generation).iter().for_each(|known| known.worker_gone(worker));
            }
            ToRouter::RetireRoadRunnerWorker { generation, worker } => {
                self.generations.roadrunner.find(generation).iter().for_each(|known| known.retire_worker(worker));
            }
            ToRouter::WarmUp { generation, each_worker } => self.warm_up(generation, each_worker, descriptors)?,
            ToRouter::DropGeneration { generation } => {
                self.generations.forget(generation);
                self.send_to_all(|| ThreadCommand::Forget(generation));
            }
            ToRouter::Configure(new) => self.configure(&new, descriptors)?,
            ToRouter::AnswerChallenges { version } => {
                let answers: ChallengeAnswers = serde_json::from_str(&read(next(&mut descriptors)?)?)?;
                match challenges::answer(answers) {
                    Ok(()) => self.supervisor.send(&FromRouter::AnswersChallenges { version }),
                    Err(reason) => tracing::error!("{reason}"),
                }
            }
            ToRouter::OnDemandCertificates { all } => {
                let pems: OnDemandPems = serde_json::from_str(&read(next(&mut descriptors)?)?)?;
                self.on_demand.update(&pems, all);
            }
            ToRouter::NameRefused { name } => self.on_demand.refuse(&name),
            ToRouter::ReplaceCertificates => self.replace_certificates(next(&mut descriptors)?)?,
            ToRouter::WorkerStarted { generation, worker } => {
                self.generations.php.find(generation).iter().for_each(|known| known.worker_started(worker));
            }
            ToRouter::WorkerDied { generation, worker, killer } => {
                self.generations.php.find(generation).iter().for_each(|known| known.worker_died(worker));
                self.send_to_all(|| ThreadCommand::WorkerDied(generation, worker, killer));
            }
            ToRouter::WorkersReplaced { generation } => {
                self.generations.php.find(generation).iter().for_each(|known| known.workers_replaced());
            }
            ToRouter::ReopenAccessLog => {
                let file = Arc::new(File::from(next(&mut descriptors)?));
                self.send_to_all(|| ThreadCommand::ReopenLog(Arc::clone(&file)));
            }
            ToRouter::ReopenErrorLog => {
                rustix::stdio::dup2_stderr(next(&mut descriptors)?)?;
                mounts::check_standard_error();
            }
            ToRouter::ReportLoad => {
                // The report goes out once every thread has dropped it: each must be alive.
                let report = Arc::new(self.supervisor.send_on_drop(FromRouter::Load(self.load())));
                self.send_to_all(|| ThreadCommand::Drop(Arc::clone(&report)));
            }
            ToRouter::Boot(_) | ToRouter::Drain => return Err(io::Error::other("a second boot message")),
        }
        Ok(())
    }

    fn add_generation(&mut self, boot: GenerationBoot, mut descriptors: Descriptors) -> io::Result<()> {
        let channel = RouterEnd::attach(next(&mut descriptors)?, boot.geometry)?;
        let paths: GenerationPaths = serde_json::from_str(&read(next(&mut descriptors)?)?)?;
        let id = boot.id;
        let log = if boot.has_log { descriptors.next_back() } else { None };
        let log = log.map(|file| ApplicationLog::new(File::from(file)));
        let arriving = &mut self.generations.php;
        let pools = boot.pools.iter().map(|id| arriving.take_arriving(*id));
        let pools: Option<Vec<_>> = pools.collect();
        let pools = pools.ok_or_else(|| io::Error::other(format!("a pool of generation {id} is not known")))?;
        let whole = boot.pool_of.unwrap_or(id);
        let arrived = self.generations.php.arriving().find(|arrived| arrived.is_of(whole));
        let sibling = pools.first().or(arrived).map(Arc::as_ref);
        let generation = SharedGeneration::new(boot, channel, descriptors.collect(), &self.supervisor, sibling);
        let generation = generation.with(paths, log).with_pools(pools)?;
        self.generations.php.add(generation);
        Ok(())
    }

    /// One thread has the generation answer its first requests.
    fn warm_up(&self, id: u64, each_worker: bool, mut descriptors: Descriptors) -> io::Result<()> {
        let requests: Vec<WarmUpRequest> = serde_json::from_str(&read(next(&mut descriptors)?)?)?;
        let known = self.generations.php.find(id);
        let generation = known.ok_or_else(|| io::Error::other(format!("generation {id} is not known")))?;
        let thread = id as usize % self.commands.len();
        let order = WarmUpOrder { generation, requests, each_worker, supervisor: self.supervisor.clone() };
        // A thread that has drained receives nothing, and nothing waits for it.
        let _ = self.commands[thread].send(ThreadCommand::WarmUp(order));
        Ok(())
    }

    /// Passes a configuration on to the threads. A configuration that cannot be served is refused, and nothing changes.
    fn configure(&mut self, new: &RouterConfiguration, mut descriptors: Descriptors) -> io::Result<()> {
        let text = read(next(&mut descriptors)?)?;
        let certificates: CertificatePems = serde_json::from_str(&read(next(&mut descriptors)?)?)?;
        let access_log = if new.access_log { Some(Arc::new(File::from(next(&mut descriptors)?))) } else { None };
        let version = new.version;
        inject("configuration", &format!("configuration {version}"));
        let before = self.configured.as_ref().map(|configured| &*configured.configuration);
        let (tls, upstream_tls) = (&mut self.tls, &mut self.upstream_tls);
        let prepared = match prepare(&text, &certificates, tls, upstream_tls, before) {
            Ok(prepared) => prepared,
            Err(reason) => {
                self.supervisor.send(&FromRouter::Rejected { version, reason });
                return Ok(());
            }
        };
        let PreparedConfiguration { configuration, user_files, error_pages, upstream_tls, tls } = prepared;
        let tls: Vec<_> = new.listeners.iter().zip(tls).filter_map(|(id, config)| Some((*id, config?))).collect();
        self.tls_listeners = tls.iter().map(|(id, _)| *id).collect();
        let tls = tls.into_iter().collect();
        self.listeners.retain(|id, _| new.listeners.contains(id));
        self.quic_sockets.retain(|id, _| new.quic_sockets.values().any(|named| named == id));
        let quic_sockets =
            new.quic_sockets.iter().filter_map(|(listener, id)| Some((*listener, self.quic_sockets.get(id)?)));
        let quic_sockets =
            quic_sockets.map(|(listener, socket)| Ok((listener, self.reserve.open(|| socket.try_clone())?)));
        let quic_sockets: BTreeMap<u64, UdpSocket> = quic_sockets.collect::<io::Result<_>>()?;
        self.generations.check_known(&new.generations)?;
        let generations = self.generations.php.of(&new.generations);
        howdah_telemetry::logs::set_on(
            configuration.settings.telemetry.as_ref().is_some_and(|telemetry| telemetry.logs),
        );
        self.upstream_health.update(&configuration);
        let configuration = Arc::new(configuration);
        let limits = self.configured.take_if(|before| before.configuration.routes == configuration.routes);
        let (rate_limits, connection_limits) =
            limits.map(|before| (before.rate_limits, before.connection_limits)).unwrap_or_default();
        self.configured = Some(Configured {
            configuration: Arc::clone(&configuration),
            rate_limits: Arc::clone(&rate_limits),
            connection_limits: connection_limits.clone(),
        });
        let reconfiguration = Reconfiguration {
            snapshot: Arc::new(Snapshot {
                configuration,
                listeners: new.listeners.iter().enumerate().map(|(index, id)| (*id, index)).collect(),
                tls,
                upstream_tls,
                upstream_health: self.upstream_health.clone(),
                pins: Pins::of(generations.values().map(|generation| (generation.id, &generation.paths))),
                generations,
                http_generations: self.generations.http.of(&new.generations),
                roadrunner_generations: self.generations.roadrunner.of(&new.generations),
                fastcgi_generations: self.generations.fastcgi.of(&new.generations),
                rate_limits,
                connection_limits,
                user_files,
                error_pages,
                access_log,
            }),
            listeners: Arc::new(self.listeners.clone()),
            authorities: Arc::new(self.authorities()),
            quic_sockets: Arc::new(quic_sockets),
            done: Arc::new(self.supervisor.send_on_drop(FromRouter::Configured { version })),
        };
        for (index, commands) in self.commands.iter().enumerate() {
            inject("configure", &format!("event loop {index}"));
            // A thread that has drained receives nothing.
            let _ = commands.send(ThreadCommand::Configure(reconfiguration.clone()));
        }
        self.generations.configured(&new.generations);
        Ok(())
    }

    /// Passes the listeners' settings with other certificates on to the threads. Connections keep theirs.
    fn replace_certificates(&mut self, certificates: OwnedFd) -> io::Result<()> {
        let certificates: CertificatePems = serde_json::from_str(&read(certificates)?)?;
        match self.tls.replace_certificates(&certificates) {
            Ok(configs) => {
                let configs = Arc::new(self.tls_listeners.iter().copied().zip(configs).collect());
                let authorities = Arc::new(self.authorities());
                self.send_to_all(|| ThreadCommand::SetTls(Arc::clone(&configs), Arc::clone(&authorities)));
            }
            Err(reason) => tracing::error!("{reason}; the listeners keep the former certificates"),
        }
        Ok(())
    }

    /// The authorities of clients' certificates, by listener.
    fn authorities(&self) -> Authorities {
        let of_listeners = self.tls_listeners.iter().zip(self.tls.authorities());
        of_listeners.filter_map(|(id, authorities)| Some((*id, authorities?))).collect()
    }

    fn load(&self) -> RouterLoad {
        let (upstream_troubles, upstream_active) = (self.upstream_health.troubles(), self.upstream_health.active());
        let mut report = RouterLoad { upstream_troubles, upstream_active, ..RouterLoad::default() };
        self.loads.iter().for_each(|load| load.add_to(&mut report));
        self.generations.add_to(&mut report);
        report
    }

    fn send_to_all(&self, command: impl Fn() -> ThreadCommand) {
        for commands in &self.commands {
            // A thread that has drained receives nothing.
            let _ = commands.send(command());
        }
    }

    /// Passes deaths of workers on until all threads have finished.
    fn drain(mut self) -> io::Result<()> {
        self.listeners.clear();
        self.quic_sockets.clear();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            poll(&mut [PollFd::new(self.control.as_fd(), PollFlags::POLLIN)], PollTimeout::from(20u8))?;
            match self.reserve.open(|| self.control.receive_long()) {
                Err(error) if CutOff::is(&error) => self.wait_for_descriptors(&error),
                Ok(Some((ToRouter::Drain, _))) | Err(_) => {}
                Ok(Some((message, descriptors))) => self.handle(message, descriptors.into_iter())?,
                Ok(None) => return Ok(()),
            }
        }
        Ok(())
    }
}

fn next(descriptors: &mut Descriptors) -> io::Result<OwnedFd> {
    descriptors.next().ok_or_else(|| io::Error::other("a message of the supervisor lacks descriptors"))
}

fn read(file: OwnedFd) -> io::Result<String> {
    let mut text = String::new();
    let mut file = File::from(file);
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
