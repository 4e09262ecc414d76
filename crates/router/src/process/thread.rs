//! An event-loop thread: accepts connections, serves its own, and moves the bytes of its requests in PHP.
//!
//! Before the thread sleeps, it empties its mailboxes and announces the sleep in them; each round of its tasks begins with
//! them. While it is busy, the workers make no system call to wake it.
//!
//! A new configuration replaces the thread's [`View`] whole. Ports and listeners that it names again are kept.

use crate::backends::fastcgi::FastCgiGeneration;
use crate::backends::php::{SWEEP, Warming};
use crate::backends::proxy::HealthChecks;
use crate::dispatch::View;
use crate::net::accept::{self, Accepting, Acceptor, Entrance};
use crate::net::accept_turn::ThreadTurn;
use crate::net::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::net::load::Load;
use crate::net::shortage::Shortage;
use crate::net::tls::OnDemandCertificates;
use crate::net::transport::Accepted;
use crate::process::access_change::{
    Authorities, has_new_authorities, has_new_web_servers, has_other_authorities, has_other_protocol,
};
use crate::process::command::{Reconfiguration, ThreadCommand};
use crate::process::ports::Ports;
use crate::process::serving::Serving;
use crate::protocols::http3::listener::QuicListener;
use crate::report::{ReportOnDrop, SupervisorLink, count_lost_lines, count_with, inject, spawn_essential};
use howdah_channel::Counters;
use howdah_config::Listener;
use howdah_metrics::recorder::Recorder;
use howdah_protocol::messages::router::FromRouter;
use nix::sys::resource::{Resource, getrlimit};
use rustix::io::Errno;
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

/// The parts that a thread starts with.
pub struct Setup {
    /// Its index among the threads.
    pub index: u16,
    /// How much each thread has to do.
    pub loads: Arc<[Arc<Load>]>,
    /// Its view of the turn to accept.
    pub turn: ThreadTurn,
    /// The limit of connections, which all threads share.
    pub limit: Arc<ConnectionLimit>,
    /// The limit of descriptors that the process has set for itself.
    pub descriptors: u64,
    /// The memory that it counts in.
    pub counters: Arc<Counters>,
    /// By which it recognizes what another router has issued to clients of QUIC.
    pub quic_secret: [u8; 32],
    /// The certificates that handshakes may wait for.
    pub on_demand: Arc<OnDemandCertificates>,
    /// Receives reports of the thread.
    pub supervisor: SupervisorLink,
    /// Its commands.
    pub commands: mpsc::UnboundedReceiver<ThreadCommand>,
}

/// A thread's state, for the tasks on it.
struct Thread {
    index: usize,
    serving: Rc<Serving>,
    ports: Ports,
    /// The checks of servers, on the first thread.
    health_checks: HealthChecks,
    /// Warm-ups of generations that no configuration names yet, by generation.
    warming: RefCell<HashMap<u64, Warming>>,
    /// The listeners, by number.
    accepting: RefCell<HashMap<u64, Accepting<Arc<ReportOnDrop>>>>,
    /// The authorities of clients' certificates.
    authorities: RefCell<Arc<Authorities>>,
    quic_secret: [u8; 32],
    /// Makes the event loop run another round instead of sleeping.
    stay_awake: Notify,
    loads: Arc<[Arc<Load>]>,
    turn: ThreadTurn,
    descriptors: u64,
    /// The last time that a connection could not be accepted.
    shortage: Cell<Option<Shortage>>,
    supervisor: SupervisorLink,
}

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
    let mut served = Box::pin(tasks.run_until(serve(setup)));
    // Each call is a round of tasks. Tasks that yield keep the thread from its sleep, and Tokio from the calls before and after.
    runtime.block_on(poll_fn(|context| {
        with_current(|thread| thread.ports.begin_round());
        served.as_mut().poll(context)
    }));
    drop(served);
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
        serving: Rc::new(Serving::new(
            Arc::clone(&setup.loads[usize::from(setup.index)]),
            setup.limit,
            setup.on_demand,
        )),
        ports: Ports::new(setup.index),
        health_checks: HealthChecks::default(),
        warming: RefCell::default(),
        accepting: RefCell::default(),
        authorities: RefCell::default(),
        quic_secret: setup.quic_secret,
        stay_awake: Notify::new(),
        loads: setup.loads,
        turn: setup.turn,
        descriptors: setup.descriptors,
        shortage: Cell::new(None),
        supervisor: setup.supervisor,
    });
    CURRENT.with_borrow_mut(|current| *current = Some(Rc::clone(&thread)));
    spawn_essential(sweep(Rc::clone(&thread)));
    spawn_essential(run_on_request(Rc::clone(&thread)));

    let mut commands = setup.commands;
    while !thread.serving.draining.get() {
        let Some(command) = commands.recv().await else { break };
        thread.handle(command);
    }
    loop {
        // Deaths of workers still come.
        tokio::select! {
            () = thread.serving.connections.all_closed(), if !thread.serving.connections.is_empty() => {}
            Some(command) = commands.recv() => thread.handle(command),
            () = tokio::time::sleep(DRAIN_CHECK) => {
                if thread.serving.connections.is_empty() {
                    break;
                }
            }
        }
    }
    let quic_listeners = thread.serving.quic_listeners.take();
    for listener in quic_listeners.values() {
        listener.sent_last_packets().await;
    }
    thread.serving.dispatcher.access_log.borrow_mut().flush();
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
        thread.turn.check();
        let dispatcher = &thread.serving.dispatcher;
        dispatcher.views.sweep();
        thread.ports.sweep();
        dispatcher.proxy.sweep();
        count_lost_lines();
        let view = dispatcher.views.active();
        if thread.index == CHECKING_THREAD {
            view.roadrunner_generations().for_each(|generation| generation.retire_idle(Instant::now().into()));
        }
        view.fastcgi_generations().for_each(FastCgiGeneration::sweep);
        thread.serving.connections.check(&view.configuration().settings.http);
    }
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
    fn handle(self: &Rc<Self>, command: ThreadCommand) {
        match command {
            ThreadCommand::Configure(reconfiguration) => self.configure(&reconfiguration),
            ThreadCommand::SetTls(configs, authorities) => {
                let accepting = self.accepting.borrow();
                let known = configs.iter().filter_map(|(id, config)| Some((accepting.get(id)?, config)));
                known.for_each(|(accepting, config)| accepting.set_tls(Some(Arc::clone(config))));
                let view = self.serving.dispatcher.views.active();
                let streams = view.configuration().settings.http.http2.max_concurrent_streams;
                let quic_listeners = self.serving.quic_listeners.borrow();
                let known = configs.iter().filter_map(|(id, config)| Some((id, quic_listeners.get(id)?, config)));
                known.for_each(|(id, listener, config)| {
                    configure_quic(listener, config, streams, has_early_data(view.listener(*id)));
                });
                let old = self.authorities.replace(Arc::clone(&authorities));
                let has_new = |listener: &u64| has_new_authorities(*listener, &old, &authorities);
                self.serving.dispatcher.withdrawals.withdraw(authorities.keys().copied().filter(has_new));
                let has_other = |listener| has_other_authorities(listener, &old, &authorities);
                self.serving.connections.drain(|clock| has_other(clock.listener()));
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
            ThreadCommand::ReopenLog(file) => self.serving.dispatcher.access_log.borrow_mut().reopen(file),
            ThreadCommand::Drain => {
                self.serving.draining.set(true);
                self.health_checks.stop();
                self.accepting.borrow_mut().clear();
                self.serving.quic_listeners.borrow().values().for_each(QuicListener::stop);
                self.serving.connections.drain(|_| true);
            }
        }
    }

    fn configure(self: &Rc<Self>, new: &Reconfiguration) {
        let (snapshot, serving) = (&new.snapshot, &self.serving);
        let ports = snapshot.generations.iter().map(|(name, generation)| (name.clone(), self.ports.port(generation)));
        let view = View::new(Arc::clone(snapshot), ports.collect());
        let mut accepting = self.accepting.borrow_mut();
        let removed: Vec<_> = accepting.keys().filter(|id| !new.listeners.contains_key(id)).copied().collect();
        let old_view = serving.dispatcher.views.active();
        serving.dispatcher.views.activate(view, removed.iter().copied());
        let view = serving.dispatcher.views.active();
        self.warming.borrow_mut().retain(|id, _| !snapshot.generations.values().any(|named| named.id == *id));
        let destination = snapshot.configuration.access_log.as_ref().map(|log| &log.destination);
        serving.dispatcher.access_log.borrow_mut().open(destination, snapshot.access_log.clone());
        if serving.draining.get() {
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
                None => {
                    let task = accept::accept(self, self.turn.clone(), *id, listening, tls);
                    accepting.insert(*id, task);
                }
            }
        }
        self.configure_quic(new);
        let quic_listeners = serving.quic_listeners.borrow();
        let old_authorities = self.authorities.replace(Arc::clone(&new.authorities));
        let withdrawals = &serving.dispatcher.withdrawals;
        withdrawals.retain(|id| snapshot.listeners.contains_key(&id));
        withdrawals.withdraw(snapshot.listeners.keys().copied().filter(|id| {
            has_new_authorities(*id, &old_authorities, &new.authorities)
                || has_new_web_servers(old_view.listener(*id), view.listener(*id))
        }));
        serving.connections.drain(|clock| {
            let id = clock.listener();
            !snapshot.listeners.contains_key(&id)
                || clock.is_quic() && !quic_listeners.contains_key(&id)
                || has_other_authorities(id, &old_authorities, &new.authorities)
                || has_other_protocol(old_view.listener(id), view.listener(id))
        });
    }

    /// Opens the sockets of QUIC that this thread has in this configuration, and stops the others. Each listener's socket
    /// belongs to one thread.
    fn configure_quic(self: &Rc<Self>, new: &Reconfiguration) {
        let mut listeners = self.serving.quic_listeners.borrow_mut();
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
                    let (serving, id) = (Rc::clone(&self.serving), *id);
                    let permitting = Rc::clone(&serving);
                    let serve = move |handshake, permit| Rc::clone(&serving).serve_quic(handshake, local, id, permit);
                    spawn_essential(listener.accept(move || permitting.permit(), serve));
                    listeners.insert(id, listener);
                }
                Err(error) => tracing::error!(%error, "a thread cannot watch a socket of HTTP/3 (see `ulimit -n`)"),
            }
        }
    }

    fn prepare_to_sleep(&self) {
        self.serving.dispatcher.access_log.borrow_mut().flush();
        if !self.ports.prepare_to_sleep() {
            self.stay_awake.notify_one();
        }
    }
}

impl Acceptor for Thread {
    fn permit(&self) -> Option<ConnectionPermit> {
        self.serving.permit()
    }

    fn withdrawals(&self, listener: u64) -> u64 {
        self.serving.dispatcher.withdrawals.of(listener)
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

    fn take(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        self.shortage.set(None);
        spawn_local(Rc::clone(&self.serving).serve(accepted, entrance));
        self.turn.took_connection(&self.loads, self.accepting.borrow().len());
    }
}
