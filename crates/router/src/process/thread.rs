//! An event-loop thread: accepts connections, serves its own, and moves the bytes of its requests in PHP.
//!
//! Before the thread sleeps, it empties its mailboxes and announces the sleep in them; when it wakes, it empties them
//! first. While it is busy, the workers make no system call to wake it.
//!
//! A new configuration replaces the thread's [`View`] whole. Ports and listeners that it names again are kept.

use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::{SWEEP, Warming};
use crate::backends::proxy::HealthChecks;
use crate::connection::clock::ConnectionClock;
use crate::connection::rejection::log_closed;
use crate::dispatch::{self, Dispatcher, View};
use crate::fastcgi_listener;
use crate::fastcgi_listener::clock::FastCgiClock;
use crate::fastcgi_listener::request_body::RequestBody as FastCgiBody;
use crate::http1;
use crate::http1::clock::Clock;
use crate::http2;
use crate::http2::clock::MultiplexedClock;
use crate::http2::request_body::RequestBody;
use crate::http3;
use crate::http3::clock::QuicClock;
use crate::http3::listener::{Handshake, QuicListener};
use crate::http3::request_body::RequestBody as Http3Body;
use crate::net::accept::{self, Accepting, Acceptor, Entrance};
use crate::net::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::net::load::Load;
use crate::net::peer::Peer;
use crate::net::shortage::Shortage;
use crate::net::socket::Socket;
use crate::net::tls::Negotiated;
use crate::net::transport::{Accepted, Transport};
use crate::process::client::{self, Client};
use crate::process::command::{Reconfiguration, ThreadCommand};
use crate::process::connections::{Connections, Registered};
use crate::process::ports::Ports;
use crate::report::{ReportOnDrop, SupervisorLink, count, count_lost_lines, count_with, inject, spawn_essential};
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::record::numbers::RequestNumbers;
use bytes::Bytes;
use howdah_channel::Counters;
use howdah_config::Listener;
use howdah_metrics::labels::{Cause, NameId};
use howdah_metrics::layout::Scalar;
use howdah_metrics::recorder::Recorder;
use howdah_protocol::messages::router::FromRouter;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use nix::sys::resource::{Resource, getrlimit};
use rustix::io::Errno;
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

/// The parts that a thread starts with.
pub struct Setup {
    /// Its index among the threads.
    pub index: u16,
    /// The command queues of all threads, its own included.
    pub all_threads: Vec<mpsc::UnboundedSender<ThreadCommand>>,
    /// How much each thread has to do.
    pub loads: Arc<[Arc<Load>]>,
    /// The limit of connections, which all threads share.
    pub limit: Arc<ConnectionLimit>,
    /// The limit of descriptors that the process has set for itself.
    pub descriptors: u64,
    /// The memory that it counts in.
    pub counters: Arc<Counters>,
    /// By which it recognizes what another router has issued to clients of QUIC.
    pub quic_secret: [u8; 32],
    /// Receives reports of the thread.
    pub supervisor: SupervisorLink,
    /// Its commands.
    pub commands: mpsc::UnboundedReceiver<ThreadCommand>,
}

/// A thread's state, for the tasks on it.
struct Thread {
    index: usize,
    dispatcher: Rc<Dispatcher>,
    connections: Connections,
    ports: Ports,
    /// The checks of servers, on the first thread.
    health_checks: HealthChecks,
    /// Warm-ups of generations that no configuration names yet, by generation.
    warming: RefCell<HashMap<u64, Warming>>,
    /// The listeners, by number.
    accepting: RefCell<HashMap<u64, Accepting<Arc<ReportOnDrop>>>>,
    /// The sockets of QUIC that this thread has, by listener.
    quic_listeners: RefCell<HashMap<u64, QuicListener>>,
    quic_secret: [u8; 32],
    draining: Cell<bool>,
    /// Makes the event loop run another round instead of sleeping.
    stay_awake: Notify,
    all_threads: Vec<mpsc::UnboundedSender<ThreadCommand>>,
    loads: Arc<[Arc<Load>]>,
    limit: Arc<ConnectionLimit>,
    descriptors: u64,
    /// The last time that a connection could not be accepted.
    shortage: Cell<Option<Shortage>>,
    supervisor: SupervisorLink,
}

/// Counts an event when it is dropped.
struct CountsOnDrop(Scalar);

/// The index of the thread that checks the servers of upstreams and idle workers of RoadRunner: nothing is checked by two.
const CHECKING_THREAD: usize = 0;
/// How often a draining thread checks whether its connections are closed.
const DRAIN_CHECK: Duration = Duration::from_millis(20);

thread_local! {
    static CURRENT: RefCell<Option<Rc<Thread>>> = const { RefCell::new(None) };
}

/// Runs a thread until it has drained.
///
/// # Errors
/// When the event loop cannot be made.
pub fn run(setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(|| with_current(Thread::prepare_to_sleep))
        .on_thread_unpark(|| with_current(|thread| thread.ports.woke()))
        .build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, serve(setup));
    drop(tasks);
    // A thread that waits for a file system that hangs must not keep the router from its end.
    runtime.shutdown_background();
    Ok(())
}

fn with_current(act: impl FnOnce(&Thread)) {
    let thread = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
    if let Some(thread) = thread {
        act(&thread);
    }
}

async fn serve(setup: Setup) {
    count_with(Recorder::new(Arc::clone(&setup.counters), setup.index));
    let thread = Rc::new(Thread {
        index: setup.index.into(),
        dispatcher: Rc::default(),
        connections: Connections::default(),
        ports: Ports::new(setup.index),
        health_checks: HealthChecks::default(),
        warming: RefCell::default(),
        accepting: RefCell::default(),
        quic_listeners: RefCell::default(),
        quic_secret: setup.quic_secret,
        draining: Cell::new(false),
        stay_awake: Notify::new(),
        all_threads: setup.all_threads,
        loads: setup.loads,
        limit: setup.limit,
        descriptors: setup.descriptors,
        shortage: Cell::new(None),
        supervisor: setup.supervisor,
    });
    CURRENT.with_borrow_mut(|current| *current = Some(Rc::clone(&thread)));
    spawn_essential(sweep(Rc::clone(&thread)));
    spawn_essential(run_on_request(Rc::clone(&thread)));

    let mut commands = setup.commands;
    while !thread.draining.get() {
        let Some(command) = commands.recv().await else { break };
        thread.handle(command);
    }
    loop {
        // Connections that another thread accepted before it received the drain, and deaths of workers, still come.
        tokio::select! {
            () = thread.connections.all_closed(), if !thread.connections.is_empty() => {}
            Some(command) = commands.recv() => thread.handle(command),
            () = tokio::time::sleep(DRAIN_CHECK) => {
                if thread.connections.is_empty() {
                    break;
                }
            }
        }
    }
    let quic_listeners = thread.quic_listeners.take();
    for listener in quic_listeners.values() {
        listener.sent_last_packets().await;
    }
    thread.dispatcher.access_log.borrow_mut().flush();
    CURRENT.with_borrow_mut(Option::take);
}

/// Keeps the event loop from sleeping: it only has to be woken.
async fn run_on_request(thread: Rc<Thread>) {
    loop {
        thread.stay_awake.notified().await;
    }
}

/// The periodic work of a thread.
async fn sweep(thread: Rc<Thread>) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for round in 0_u64.. {
        ticks.tick().await;
        inject("sweep", &format!("sweep {round}"));
        thread.dispatcher.views.sweep();
        thread.ports.sweep();
        thread.dispatcher.proxy.sweep();
        count_lost_lines();
        let view = thread.dispatcher.views.active();
        if thread.index == CHECKING_THREAD {
            view.roadrunner_generations().for_each(|generation| generation.retire_idle(Instant::now().into()));
        }
        view.fastcgi_generations().for_each(FastCgiGeneration::sweep);
        thread.connections.check(&view.configuration().settings.http);
    }
}

/// Serves a connection to its end.
async fn serve_connection(thread: &Rc<Thread>, accepted: Accepted, entrance: Entrance) {
    let Entrance { listener, tls, permit: _permit } = entrance;
    let Ok(mut peer) = Peer::of(&accepted, listener) else { return };
    let view = thread.dispatcher.views.of_listener(listener);
    if let Some(fastcgi) = view.listener(listener).and_then(|listener| listener.fastcgi.as_ref()) {
        let is_allowed = fastcgi.allows(accepted.remote());
        drop(view);
        if !is_allowed {
            return log_closed(&peer, "it is not one of \"allowed_clients\" of the FastCGI listener");
        }
        let Ok(transport) = Transport::new(accepted) else { return };
        return Box::pin(serve_fastcgi(thread, transport, peer)).await;
    }
    drop(view);
    let Ok(transport) = Transport::new(accepted) else { return };
    let clock = Rc::new(Clock::new(Arc::clone(thread.load()), listener, thread.is_draining(listener)));
    let registered = thread.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
    let remote_addr = Rc::clone(&peer.remote_addr);
    let dispatcher = &thread.dispatcher;
    let view = dispatcher.views.of_listener(listener);
    let may_know_http2 = tls.is_none() && view.listener(listener).is_some_and(|listener| listener.http2);
    drop(view);
    let status = match client::greet(&clock, transport, &mut peer, tls, may_know_http2).await {
        Client::Ended(status) => status,
        Client::Http1(socket, read_before) => {
            let answer = |peer, clock: Rc<Clock>, request: Request<Incoming>| {
                inject("connection", request.uri().path());
                let request = request.map(|body| IncomingBody::of_http1(body, &clock));
                dispatch::answer(Rc::clone(dispatcher), peer, RequestClock::Http1(clock), request)
            };
            http1::connection::serve(clock, socket, read_before, Rc::new(peer), answer).await
        }
        Client::Http2(socket, read_before) => {
            drop(clock);
            let serving = Box::pin(serve_http2(thread, &registered, socket, read_before, peer));
            serving.await
        }
    };
    if let Some(status) = status {
        let bad_request = RequestNumbers::default();
        bad_request.refuse(Cause::BadRequest);
        bad_request.count(NameId::NONE, "", status, Instant::now());
        let view = dispatcher.views.active();
        let log = dispatcher.log_sink(view.configuration());
        if let Some(entry) = log.and_then(|log| log.entry_without_request(&remote_addr, status)) {
            entry.write();
        }
    }
}

/// Returns the status for the access log, if the connection ended with bytes that are no request.
async fn serve_http2(
    thread: &Rc<Thread>,
    registered: &Registered<'_>,
    socket: Socket,
    read_before: Bytes,
    peer: Peer,
) -> Option<StatusCode> {
    let listener = peer.listener;
    let (clock, max_concurrent_streams) = {
        let view = thread.dispatcher.views.of_listener(listener);
        let http = &view.configuration().settings.http;
        let is_draining = thread.is_draining(listener);
        let clock = MultiplexedClock::new(Arc::clone(thread.load()), listener, is_draining, http);
        (Rc::new(clock), http.http2.max_concurrent_streams)
    };
    registered.replace(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
    let dispatcher = Rc::clone(&thread.dispatcher);
    let answer = move |peer, clock, request: Request<RequestBody>| {
        inject("connection", request.uri().path());
        let request = request.map(IncomingBody::of_http2);
        dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::Http2(clock), request)
    };
    http2::connection::serve(clock, socket, read_before, Rc::new(peer), max_concurrent_streams, answer).await
}

/// Serves a connection of QUIC, from its handshake to its end.
async fn serve_http3(
    thread: Rc<Thread>,
    handshake: Handshake,
    local: SocketAddr,
    listener: u64,
    _permit: ConnectionPermit,
) {
    let _open = thread.load().connection_began();
    count(Scalar::Accepted);
    let _closed = CountsOnDrop(Scalar::Closed);
    let (client, began) = (handshake.remote(), Instant::now());
    let (connection, completion) = match handshake.begin().await {
        Ok(begun) => begun,
        Err(reason) => {
            count(Scalar::TlsFailed);
            return tracing::debug!(%client, reason, "a QUIC handshake failed");
        }
    };
    let local = SocketAddr::new(connection.local_ip().unwrap_or(local.ip()), local.port());
    let negotiated = Negotiated::of_quic(connection.peer_identity());
    let peer = Peer::of_quic(client, local, negotiated, listener);
    peer.handshake.set(Some((began, Instant::now())));
    let clock = {
        let view = thread.dispatcher.views.of_listener(listener);
        let is_draining = thread.is_draining(listener) || !thread.quic_listeners.borrow().contains_key(&listener);
        let http = &view.configuration().settings.http;
        // Without a completion to wait for, the handshake is complete.
        let is_confirmed = completion.is_none();
        Rc::new(QuicClock::new(Arc::clone(thread.load()), listener, is_draining, is_confirmed, http))
    };
    match completion {
        None => count(Scalar::Tls13),
        Some(completion) => {
            let clock = Rc::clone(&clock);
            spawn_local(async move {
                match completion.complete().await {
                    Ok(()) => {
                        count(Scalar::Tls13);
                        clock.confirm();
                    }
                    Err(reason) => {
                        count(Scalar::TlsFailed);
                        tracing::debug!(%client, reason, "a QUIC handshake failed");
                    }
                }
            });
        }
    }
    let _registered = thread.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
    let dispatcher = Rc::clone(&thread.dispatcher);
    let answer = move |peer, clock, request: Request<Http3Body>| {
        inject("connection", request.uri().path());
        let request = request.map(IncomingBody::of_http3);
        dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::Http3(clock), request)
    };
    http3::connection::serve(clock, connection, client, peer, answer).await;
}

async fn serve_fastcgi(thread: &Rc<Thread>, transport: Transport, peer: Peer) {
    let listener = peer.listener;
    let clock = Rc::new(FastCgiClock::new(Arc::clone(thread.load()), listener, thread.is_draining(listener)));
    let _registered = thread.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
    let dispatcher = Rc::clone(&thread.dispatcher);
    let answer = move |peer, clock, request: Request<FastCgiBody>| {
        inject("connection", request.uri().path());
        let request = request.map(IncomingBody::of_fastcgi);
        dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::FastCgi(clock), request)
    };
    fastcgi_listener::connection::serve(clock, transport, peer, thread.limit.max(), answer).await;
}

fn has_early_data(listener: Option<&Listener>) -> bool {
    listener.and_then(|listener| listener.http3).is_some_and(|http3| http3.early_data)
}

/// Sets the settings of connections. A configuration without a suite for QUIC was refused before.
fn configure_quic(listener: &QuicListener, tls: &ServerConfig, streams: u32, early_data: bool) {
    if let Err(error) = listener.configure(tls, streams, early_data) {
        tracing::error!(%error, "a listener cannot have HTTP/3: its TLS has no suite for it");
    }
}

// === impl Thread ===

impl Thread {
    fn load(&self) -> &Arc<Load> {
        &self.loads[self.index]
    }

    /// Whether connections of this listener end as soon as their requests are answered.
    fn is_draining(&self, listener: u64) -> bool {
        self.draining.get() || !self.dispatcher.views.has_listener(listener)
    }

    fn spawn(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        let open = self.load().connection_began();
        let thread = Rc::clone(self);
        spawn_local(async move {
            let _open = open;
            count(Scalar::Accepted);
            let _closed = CountsOnDrop(Scalar::Closed);
            serve_connection(&thread, accepted, entrance).await;
        });
    }

    fn handle(self: &Rc<Self>, command: ThreadCommand) {
        match command {
            ThreadCommand::Serve(accepted, entrance) => self.spawn(accepted, entrance),
            ThreadCommand::Configure(reconfiguration) => self.configure(&reconfiguration),
            ThreadCommand::SetTls(configs) => {
                let accepting = self.accepting.borrow();
                let known = configs.iter().filter_map(|(id, config)| Some((accepting.get(id)?, config)));
                known.for_each(|(accepting, config)| accepting.set_tls(Some(Arc::clone(config))));
                let view = self.dispatcher.views.active();
                let streams = view.configuration().settings.http.http2.max_concurrent_streams;
                let quic_listeners = self.quic_listeners.borrow();
                let known = configs.iter().filter_map(|(id, config)| Some((id, quic_listeners.get(id)?, config)));
                known.for_each(|(id, listener, config)| {
                    configure_quic(listener, config, streams, has_early_data(view.listener(*id)));
                });
            }
            ThreadCommand::WarmUp(order) => {
                let (id, port) = (order.generation.id, self.ports.port(&order.generation));
                self.warming.borrow_mut().insert(id, Warming::begin(port, order));
            }
            ThreadCommand::Forget(id) => drop(self.warming.borrow_mut().remove(&id)),
            ThreadCommand::WorkerDied(generation, worker, killer) => self.ports.for_each(|port| {
                if port.generation.id == generation {
                    port.worker_died(worker, killer);
                }
            }),
            ThreadCommand::Drop(report) => drop(report),
            ThreadCommand::ReopenLog(file) => self.dispatcher.access_log.borrow_mut().reopen(file),
            ThreadCommand::Drain => {
                self.draining.set(true);
                self.health_checks.stop();
                self.accepting.borrow_mut().clear();
                self.quic_listeners.borrow().values().for_each(QuicListener::stop);
                self.connections.drain(|_| true);
            }
        }
    }

    fn configure(self: &Rc<Self>, new: &Reconfiguration) {
        let snapshot = &new.snapshot;
        let ports = snapshot.generations.iter().map(|(name, generation)| (name.clone(), self.ports.port(generation)));
        let view = View::new(Arc::clone(snapshot), ports.collect());
        let mut accepting = self.accepting.borrow_mut();
        let removed: Vec<_> = accepting.keys().filter(|id| !new.listeners.contains_key(id)).copied().collect();
        self.dispatcher.views.activate(view, removed.iter().copied());
        self.load().configured();
        self.warming.borrow_mut().retain(|id, _| !snapshot.generations.values().any(|named| named.id == *id));
        let destination = snapshot.configuration.access_log.as_ref().map(|log| &log.destination);
        self.dispatcher.access_log.borrow_mut().open(destination, snapshot.access_log.clone());
        if self.draining.get() {
            return;
        }
        if self.index == CHECKING_THREAD {
            self.health_checks.update(&snapshot.configuration, &snapshot.upstream_health, &snapshot.upstream_tls);
        }
        for id in removed {
            if let Some(accepting) = accepting.remove(&id) {
                accepting.stop(Arc::clone(&new.done));
            }
        }
        for (id, listening) in new.listeners.iter() {
            let tls = snapshot.tls.get(id).cloned();
            match accepting.get(id) {
                Some(task) => task.set_tls(tls),
                None => match accept::accept(self, *id, listening, tls) {
                    Ok(task) => drop(accepting.insert(*id, task)),
                    Err(error) => tracing::error!(%error, "a thread cannot watch a listener (see `ulimit -n`)"),
                },
            }
        }
        self.configure_quic(new);
        let quic_listeners = self.quic_listeners.borrow();
        self.connections.drain(|clock| {
            !snapshot.listeners.contains_key(&clock.listener())
                || clock.is_quic() && !quic_listeners.contains_key(&clock.listener())
        });
    }

    /// Opens the sockets of QUIC that this thread has in this configuration, and stops the others. Each listener's socket
    /// belongs to one thread.
    fn configure_quic(self: &Rc<Self>, new: &Reconfiguration) {
        let mut listeners = self.quic_listeners.borrow_mut();
        listeners.retain(|id, listener| {
            let is_kept = new.quic_sockets.contains_key(id);
            if !is_kept {
                listener.stop();
            }
            is_kept
        });
        let streams = new.snapshot.configuration.settings.http.http2.max_concurrent_streams;
        let is_own = |id: u64| id % self.loads.len() as u64 == self.index as u64;
        for (id, socket) in new.quic_sockets.iter().filter(|(id, _)| is_own(**id)) {
            let Some(tls) = new.snapshot.tls.get(id) else { continue };
            let index = new.snapshot.listeners.get(id);
            let early_data = has_early_data(index.map(|index| &new.snapshot.configuration.listeners[*index]));
            if let Some(listener) = listeners.get(id) {
                configure_quic(listener, tls, streams, early_data);
                continue;
            }
            let opened = socket.try_clone().and_then(|socket| QuicListener::open(socket, self.quic_secret));
            match opened.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((local, mut listener)) => {
                    configure_quic(&listener, tls, streams, early_data);
                    let (thread, id) = (Rc::clone(self), *id);
                    let permitting = Rc::clone(self);
                    let serve = move |handshake, permit| serve_http3(Rc::clone(&thread), handshake, local, id, permit);
                    spawn_essential(listener.accept(move || permitting.permit(), serve));
                    listeners.insert(id, listener);
                }
                Err(error) => tracing::error!(%error, "a thread cannot watch a socket of HTTP/3 (see `ulimit -n`)"),
            }
        }
    }

    fn prepare_to_sleep(&self) {
        self.dispatcher.access_log.borrow_mut().flush();
        if !self.ports.prepare_to_sleep() {
            self.stay_awake.notify_one();
        }
    }
}

impl Drop for CountsOnDrop {
    fn drop(&mut self) {
        count(self.0);
    }
}

impl Acceptor for Thread {
    /// At the limit, some connections that wait for another request are closed.
    fn permit(&self) -> Option<ConnectionPermit> {
        let permit = self.limit.acquire();
        if permit.is_none() {
            self.connections.make_room();
        }
        permit
    }

    /// Another process of the same user may have lowered the limit of descriptors (prlimit). If that lasts, connections
    /// would wait until the router is replaced. A shortage under load passes, and is only logged.
    fn cannot_accept(&self, error: &io::Error) {
        if Errno::from_io_error(error) != Some(Errno::MFILE) {
            return;
        }
        let shortage = Shortage::after(self.shortage.get(), Instant::now());
        self.shortage.set(Some(shortage));
        if shortage.lasts()
            && let Ok((now, _)) = getrlimit(Resource::RLIMIT_NOFILE)
            && now < self.descriptors
        {
            let reason = format!("{error}; its limit of open files was lowered from {} to {now}", self.descriptors);
            self.supervisor.send(&FromRouter::CannotAccept { reason });
        }
    }

    /// Keeps a connection, or gives it to a thread that has clearly fewer. A thread that has not applied this thread's
    /// configuration yet may not know the listener.
    fn take(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        self.shortage.set(None);
        let load = |n: usize| self.loads[n].connections();
        let configurations = self.load().configurations();
        let least = (0..self.loads.len())
            .filter(|n| self.loads[*n].configurations() >= configurations)
            .fold(self.index, |least, n| if load(n) < load(least) { n } else { least });
        // All threads accept: a small difference is not worth waking another one.
        if load(self.index) <= load(least) + load(least) / 4 + 8 {
            self.spawn(accepted, entrance);
        } else if let Err(mpsc::error::SendError(ThreadCommand::Serve(accepted, entrance))) =
            self.all_threads[least].send(ThreadCommand::Serve(accepted, entrance))
        {
            self.spawn(accepted, entrance);
        }
    }
}
