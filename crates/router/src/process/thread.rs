//! An event-loop thread: accepts connections, serves its own, and looks after its requests in PHP.
//!
//! Before the thread sleeps it has drained its mailboxes, and said in them that it sleeps; when it wakes it drains them
//! first. While it is busy the workers make no system call to tell it anything.
//!
//! A new configuration replaces the thread's [`View`] whole. Ports and listeners that it names again are kept.

use crate::dispatch::snapshot::{Snapshot, View};
use crate::http1::connection::{self, Clock};
use crate::net::accept::{self, Accepting, Entrance, Listening};
use crate::net::load::Load;
use crate::net::room::{Place, Room};
use crate::net::socket::Accepted;
use crate::php::generation::Generation;
use crate::php::port::{Port, SWEEP};
use crate::php::warm_up::{Order, Warming};
use crate::proxy::Proxy;
use crate::response::access_log::AccessLog;
use crate::static_files::StaticFiles;
use crate::supervisor_link::TellOnDrop;
use howdah_channel::WorkerId;
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, LocalSet, spawn_local};

/// What other threads ask of one.
pub enum Command {
    /// Serve this connection.
    Serve(Accepted, Entrance),
    /// Serve by this configuration from now on.
    Configure(Reconfiguration),
    /// Have a generation that no configuration names yet answer its first requests.
    WarmUp(Order),
    /// No configuration will name this generation.
    Forget(u64),
    /// A worker of a generation is dead.
    WorkerDied(u64, WorkerId, Option<(u16, u32)>),
    /// Write the access log here from now on.
    ReopenLog(Arc<File>),
    /// Drop this: a thread that hangs does not.
    Answer(Arc<TellOnDrop>),
    /// Accept no more, finish, end.
    Drain,
}

/// A configuration for a thread.
#[derive(Clone)]
pub struct Reconfiguration {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Its listening sockets by number.
    pub listeners: Arc<BTreeMap<u64, Arc<Listening>>>,
    /// Dropped when the thread serves by it.
    pub done: Arc<TellOnDrop>,
}

/// What a thread starts with.
pub struct Setup {
    /// Its place among the threads.
    pub index: u16,
    /// All threads' command queues, its own too.
    pub everyone: Vec<mpsc::UnboundedSender<Command>>,
    /// How much each thread has to do.
    pub loads: Arc<[Load]>,
    /// For how many connections all threads have room.
    pub room: Arc<Room>,
    /// Its commands.
    pub commands: mpsc::UnboundedReceiver<Command>,
}

/// A thread's state, for the tasks on it.
pub struct Thread {
    /// Files.
    pub static_files: StaticFiles,
    /// Connections to other servers.
    pub proxy: Proxy,
    view: RefCell<Rc<View>>,
    /// All ports that are in use: of this view and of older ones.
    ports: RefCell<Vec<Known>>,
    /// Generations that no configuration names yet, by number.
    warming: RefCell<HashMap<u64, Warming>>,
    accepting: RefCell<HashMap<u64, Accepting>>,
    /// For listeners that were removed just now, what they served by: their last connections are owed an answer.
    removed: RefCell<HashMap<u64, (Rc<View>, Instant)>>,
    index: usize,
    access_log: RefCell<AccessLog>,
    clocks: RefCell<HashMap<u64, Rc<Clock>>>,
    next_clock: Cell<u64>,
    draining: Cell<bool>,
    ended: Notify,
    /// Makes the event loop run another round instead of sleeping.
    stay_awake: Notify,
    everyone: Vec<mpsc::UnboundedSender<Command>>,
    loads: Arc<[Load]>,
    room: Arc<Room>,
}

/// A connection's place in the thread's list; dropping it ends it.
pub struct Registered<'t> {
    thread: &'t Thread,
    key: u64,
}

/// A port as long as somebody uses it.
struct Known {
    port: Weak<Port>,
    /// Listens to the workers' eventfd.
    bell: Option<AbortHandle>,
}

/// How often mailboxes are emptied in a row before the event loop looks elsewhere.
const DRAINS_BEFORE_SLEEP: u32 = 8;
/// How long a listener's last connections may take to their first request: longer than they are waited for.
const REMOVED_KEPT: Duration = Duration::from_secs(2);
/// How many idle connections make way at one time when there is no room.
const MAKE_WAY: usize = 32;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Thread>>> = const { RefCell::new(None) };
}

/// Runs a thread until it has drained.
///
/// # Errors
/// When the event loop can't be made.
pub fn run(setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(|| with_current(Thread::prepare_to_sleep))
        .on_thread_unpark(|| with_current(Thread::woke))
        .build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, serve(setup));
    Ok(())
}

/// The access log of the thread that asks.
pub fn with_access_log(act: impl FnOnce(&mut AccessLog)) {
    with_current(|thread| act(&mut thread.access_log.borrow_mut()));
}

/// Registers a descriptor with the event loop.
///
/// # Errors
/// When no more descriptors can be watched.
#[allow(deprecated)] // `new` is deprecated for types whose descriptor could change: those here own one and keep it.
pub fn watch<T: AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(source)
}

fn with_current(act: impl FnOnce(&Thread)) {
    let thread = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
    if let Some(thread) = thread {
        act(&thread);
    }
}

async fn serve(setup: Setup) {
    let thread = Rc::new(Thread {
        static_files: StaticFiles::new(),
        proxy: Proxy::default(),
        view: RefCell::new(Rc::new(View::nothing())),
        ports: RefCell::default(),
        warming: RefCell::default(),
        accepting: RefCell::default(),
        removed: RefCell::default(),
        index: setup.index.into(),
        access_log: RefCell::default(),
        clocks: RefCell::default(),
        next_clock: Cell::new(0),
        draining: Cell::new(false),
        ended: Notify::new(),
        stay_awake: Notify::new(),
        everyone: setup.everyone,
        loads: setup.loads,
        room: setup.room,
    });
    CURRENT.with_borrow_mut(|current| *current = Some(Rc::clone(&thread)));
    spawn_local(sweep(Rc::clone(&thread)));
    spawn_local(run_on_request(Rc::clone(&thread)));

    let mut commands = setup.commands;
    while !thread.draining.get() {
        let Some(command) = commands.recv().await else { break };
        thread.obey(command);
    }
    loop {
        // Connections that another thread accepted before it heard of the drain, and deaths of workers.
        tokio::select! {
            () = thread.ended.notified(), if !thread.clocks.borrow().is_empty() => {}
            Some(command) = commands.recv() => thread.obey(command),
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                if thread.clocks.borrow().is_empty() {
                    break;
                }
            }
        }
    }
    thread.access_log.borrow_mut().flush();
    CURRENT.with_borrow_mut(Option::take);
}

/// The eventfd only ends the sleep; what there is to do is in the mailboxes.
async fn answer_bell(bell: AsyncFd<OwnedFd>) {
    while let Ok(mut ready) = bell.readable().await {
        let _ = ready.try_io(|bell| Ok(empty(bell.get_ref())?));
    }
}

/// Never waits: whether the eventfd does is what the workers say, who share it.
fn empty(bell: &OwnedFd) -> rustix::io::Result<usize> {
    const NO_OFFSET: u64 = u64::MAX;
    let mut count = [0; 8];
    match rustix::io::preadv2(bell, &mut [IoSliceMut::new(&mut count)], NO_OFFSET, ReadWriteFlags::NOWAIT) {
        // Linux before 5.8.
        Err(Errno::OPNOTSUPP) => rustix::io::read(bell, &mut count),
        result => result,
    }
}

/// Does nothing: that it is woken is enough.
async fn run_on_request(thread: Rc<Thread>) {
    loop {
        thread.stay_awake.notified().await;
    }
}

async fn sweep(thread: Rc<Thread>) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        thread.ports.borrow_mut().retain(Known::is_used);
        let forgotten: Vec<_> = {
            let mut removed = thread.removed.borrow_mut();
            removed.extract_if(|_, (_, since)| since.elapsed() > REMOVED_KEPT).collect()
        };
        drop(forgotten);
        thread.for_each_port(Port::sweep);
        thread.proxy.sweep();
        let view = thread.view();
        let now = Instant::now();
        let limits = &view.configuration().settings.http;
        thread.clocks.borrow().values().for_each(|clock| clock.check(now, limits));
    }
}

// === impl Known ===

impl Known {
    fn is_used(&self) -> bool {
        self.port.strong_count() > 0
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(bell) = &self.bell {
            bell.abort();
        }
    }
}

// === impl Thread ===

impl Thread {
    /// The configuration in force.
    pub fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// The configuration in force for connections of this listener.
    pub fn view_of(&self, listener: u64) -> Rc<View> {
        let view = self.view();
        match view.listener(listener) {
            Some(_) => view,
            None => self.removed.borrow().get(&listener).map_or(view, |(old, _)| Rc::clone(old)),
        }
    }

    /// Its counters.
    pub fn load(&self) -> &Load {
        &self.loads[self.index]
    }

    /// Adds a connection to those whose time is watched.
    pub fn register(&self, clock: &Rc<Clock>) -> Registered<'_> {
        let key = self.next_clock.replace(self.next_clock.get() + 1);
        self.clocks.borrow_mut().insert(key, Rc::clone(clock));
        Registered { thread: self, key }
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.clocks.borrow().len()
    }

    /// Whether connections of this listener end as soon as their requests are answered.
    pub fn is_draining(&self, listener: u64) -> bool {
        self.draining.get() || self.view.borrow().listener(listener).is_none()
    }

    /// Whether answers are logged.
    pub fn logs_access(&self) -> bool {
        self.access_log.borrow().is_on()
    }

    /// A place for a connection that is to be accepted. If there is none, some that wait for another request make way.
    pub fn room(&self) -> Option<Place> {
        let place = self.room.enter();
        if place.is_none() {
            let clocks = self.clocks.borrow();
            let mut idle: Vec<_> = clocks.values().filter_map(|clock| Some((clock.idle_since()?, clock))).collect();
            idle.sort_unstable_by_key(|(since, _)| *since);
            idle.iter().take(MAKE_WAY).for_each(|(_, clock)| clock.drain());
        }
        place
    }

    /// Keeps a connection, or gives it to a thread that has clearly fewer.
    pub fn distribute(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        let load = |n: usize| self.loads[n].connections();
        let least = (0..self.loads.len()).fold(self.index, |least, n| if load(n) < load(least) { n } else { least });
        // All threads accept: a few more or less are not worth waking another one.
        if load(self.index) <= load(least) + load(least) / 4 + 8 {
            self.spawn(accepted, entrance);
        } else if let Err(mpsc::error::SendError(Command::Serve(accepted, entrance))) =
            self.everyone[least].send(Command::Serve(accepted, entrance))
        {
            self.spawn(accepted, entrance);
        }
    }

    fn spawn(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        self.load().connection_began();
        let thread = Rc::clone(self);
        spawn_local(async move {
            connection::serve(Rc::clone(&thread), accepted, entrance).await;
            thread.load().connection_ended();
        });
    }

    fn obey(self: &Rc<Self>, command: Command) {
        match command {
            Command::Serve(accepted, entrance) => self.spawn(accepted, entrance),
            Command::Configure(reconfiguration) => self.configure(&reconfiguration),
            Command::WarmUp(order) => {
                let (id, port) = (order.generation.id, self.port(&order.generation));
                self.warming.borrow_mut().insert(id, Warming::begin(port, order));
            }
            Command::Forget(id) => drop(self.warming.borrow_mut().remove(&id)),
            Command::WorkerDied(generation, worker, killer) => self.for_each_port(|port| {
                if port.generation.id == generation {
                    port.worker_died(worker, killer);
                }
            }),
            Command::Answer(answer) => drop(answer),
            Command::ReopenLog(file) => self.access_log.borrow_mut().reopen(Some(file)),
            Command::Drain => {
                self.draining.set(true);
                self.accepting.borrow_mut().clear();
                let clocks: Vec<_> = self.clocks.borrow().values().cloned().collect();
                clocks.iter().for_each(|clock| clock.drain());
            }
        }
    }

    fn configure(self: &Rc<Self>, new: &Reconfiguration) {
        let snapshot = &new.snapshot;
        let ports = snapshot.generations.iter().map(|(name, generation)| (name.clone(), self.port(generation)));
        let view = View::new(Arc::clone(snapshot), ports.collect());
        let old = self.view.replace(Rc::new(view));
        self.warming.borrow_mut().retain(|id, _| !snapshot.generations.values().any(|named| named.id == *id));
        self.access_log.borrow_mut().reopen(snapshot.access_log.clone());
        if self.draining.get() {
            return;
        }
        let mut accepting = self.accepting.borrow_mut();
        let removed: Vec<_> = accepting.keys().filter(|id| !new.listeners.contains_key(id)).copied().collect();
        for id in removed {
            self.removed.borrow_mut().insert(id, (Rc::clone(&old), Instant::now()));
            if let Some(accepting) = accepting.remove(&id) {
                accepting.stop(&new.done);
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
        let clocks: Vec<_> = self.clocks.borrow().values().cloned().collect();
        clocks
            .iter()
            .filter(|clock| !snapshot.listeners.contains_key(&clock.listener()))
            .for_each(|clock| clock.drain());
    }

    /// The port to a generation: the one that there is, or a new one.
    fn port(&self, generation: &Arc<Generation>) -> Rc<Port> {
        let mut ports = self.ports.borrow_mut();
        let known =
            ports.iter().filter_map(|known| known.port.upgrade()).find(|port| port.generation.id == generation.id);
        if let Some(port) = known {
            return port;
        }
        let port = Rc::new(Port::new(Arc::clone(generation), self.index as u16));
        let bell = generation.take_bell(self.index).and_then(|bell| match watch(bell) {
            Ok(bell) => Some(spawn_local(answer_bell(bell)).abort_handle()),
            Err(error) => {
                tracing::error!(%error, "a thread cannot watch its workers (see `ulimit -n`); it looks after them seldom");
                None
            }
        });
        ports.push(Known { port: Rc::downgrade(&port), bell });
        port
    }

    fn for_each_port(&self, mut act: impl FnMut(&Rc<Port>)) {
        for port in self.ports.borrow().iter().filter_map(|known| known.port.upgrade()) {
            act(&port);
        }
    }

    fn prepare_to_sleep(&self) {
        self.access_log.borrow_mut().flush();
        self.for_each_port(|port| {
            let mut rounds = 0;
            // Whoever writes on and on must not keep the other tasks waiting: they get a turn, then it goes on.
            while !port.prepare_to_sleep() {
                port.drain();
                rounds += 1;
                if rounds == DRAINS_BEFORE_SLEEP {
                    self.stay_awake.notify_one();
                    break;
                }
            }
        });
    }

    fn woke(&self) {
        self.for_each_port(|port| {
            port.woke();
            port.drain();
        });
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut clocks = self.thread.clocks.borrow_mut();
        clocks.remove(&self.key);
        if clocks.is_empty() {
            self.thread.ended.notify_one();
        }
    }
}
