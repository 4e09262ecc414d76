//! An event-loop thread: accepts connections, serves its own, and looks after its requests in PHP.
//!
//! Before the thread sleeps it has drained its mailboxes, and said in them that it sleeps; when it wakes it drains them
//! first. While it is busy the workers make no system call to tell it anything.

use crate::access_log::AccessLog;
use crate::connection::{self, Clock};
use crate::php::Port;
use crate::socket::Accepted;
use crate::static_files::StaticFiles;
use howdah_channel::WorkerId;
use howdah_config::Configuration;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

/// What other threads ask of one.
pub enum Command {
    /// Serve this connection, of the listener at this place.
    Serve(Accepted, usize),
    /// A worker of a generation is dead.
    WorkerDied(u64, WorkerId),
    /// Write the access log here from now on.
    ReopenLog(Arc<File>),
    /// Accept no more, finish, end.
    Drain,
}

/// What a thread starts with.
pub struct Setup {
    /// Its place among the threads.
    pub index: u16,
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// Its listening sockets, with their places in the configuration.
    pub listeners: Vec<(usize, Listening)>,
    /// Makes its ports, on the thread itself.
    pub ports: Box<dyn FnOnce() -> HashMap<String, Rc<Port>> + Send>,
    /// The eventfds that its workers write.
    pub bells: Vec<OwnedFd>,
    /// The access log.
    pub access_log: Option<Arc<File>>,
    /// All threads' command queues, its own too.
    pub everyone: Vec<mpsc::UnboundedSender<Command>>,
    /// How many connections each thread has.
    pub loads: Arc<[AtomicUsize]>,
    /// Its commands.
    pub commands: mpsc::UnboundedReceiver<Command>,
}

/// A listening socket.
pub enum Listening {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a unix socket at this path.
    Unix(UnixListener, String),
}

/// A thread's state, for the tasks on it.
pub struct Thread {
    /// The configuration.
    pub configuration: Arc<Configuration>,
    /// Files.
    pub static_files: StaticFiles,
    /// Ports to the applications' generations, by application.
    pub ports: HashMap<String, Rc<Port>>,
    index: usize,
    access_log: RefCell<AccessLog>,
    clocks: RefCell<HashMap<u64, Rc<Clock>>>,
    next_clock: Cell<u64>,
    draining: Cell<bool>,
    ended: Notify,
    /// Makes the event loop run another round instead of sleeping.
    stay_awake: Notify,
    everyone: Vec<mpsc::UnboundedSender<Command>>,
    loads: Arc<[AtomicUsize]>,
}

/// A connection's place in the thread's list; dropping it ends it.
pub struct Registered<'t> {
    thread: &'t Thread,
    key: u64,
}

/// What an accepted socket is from its beginning.
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// How often mailboxes are emptied in a row before the event loop looks elsewhere.
const DRAINS_BEFORE_SLEEP: u32 = 8;
/// How often time-outs and lost wake-ups are looked for.
const SWEEP: Duration = Duration::from_millis(250);

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
    tasks.block_on(&runtime, serve(setup))
}

/// The access log of the thread that asks.
pub fn with_access_log(act: impl FnOnce(&mut AccessLog)) {
    with_current(|thread| act(&mut thread.access_log.borrow_mut()));
}

fn with_current(act: impl FnOnce(&Thread)) {
    let thread = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
    if let Some(thread) = thread {
        act(&thread);
    }
}

async fn serve(setup: Setup) -> io::Result<()> {
    let thread = Rc::new(Thread {
        configuration: setup.configuration,
        static_files: StaticFiles::new(),
        ports: (setup.ports)(),
        index: setup.index.into(),
        access_log: RefCell::default(),
        clocks: RefCell::default(),
        next_clock: Cell::new(0),
        draining: Cell::new(false),
        ended: Notify::new(),
        stay_awake: Notify::new(),
        everyone: setup.everyone,
        loads: setup.loads,
    });
    thread.access_log.borrow_mut().reopen(setup.access_log);
    CURRENT.with_borrow_mut(|current| *current = Some(Rc::clone(&thread)));
    for bell in setup.bells {
        spawn_local(answer_bell(watch(bell)?));
    }
    let mut accepting = Vec::new();
    for (place, listening) in setup.listeners {
        accepting.push(spawn_local(accept(Rc::clone(&thread), watch(listening)?, place)));
    }
    spawn_local(sweep(Rc::clone(&thread)));
    spawn_local(run_on_request(Rc::clone(&thread)));

    let mut commands = setup.commands;
    while let Some(command) = commands.recv().await {
        match command {
            Command::Serve(accepted, listener) => thread.spawn(accepted, listener),
            Command::WorkerDied(generation, worker) => {
                for port in thread.ports.values().filter(|port| port.generation.id == generation) {
                    port.worker_died(worker);
                }
            }
            Command::ReopenLog(file) => thread.access_log.borrow_mut().reopen(Some(file)),
            Command::Drain => break,
        }
    }
    thread.draining.set(true);
    for task in accepting {
        task.abort();
    }
    let clocks: Vec<_> = thread.clocks.borrow().values().cloned().collect();
    clocks.iter().for_each(|clock| clock.drain());
    loop {
        // Connections that another thread accepted before it heard of the drain, and deaths of workers.
        tokio::select! {
            () = thread.ended.notified(), if !thread.clocks.borrow().is_empty() => {}
            command = commands.recv() => match command {
                Some(Command::Serve(accepted, listener)) => thread.spawn(accepted, listener),
                Some(Command::WorkerDied(_, worker)) => thread.ports.values().for_each(|port| port.worker_died(worker)),
                _ => {}
            },
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                if thread.clocks.borrow().is_empty() {
                    break;
                }
            }
        }
    }
    thread.access_log.borrow_mut().flush();
    CURRENT.with_borrow_mut(Option::take);
    Ok(())
}

/// Registers a descriptor with the event loop.
#[allow(deprecated)] // `new` is deprecated for types whose descriptor could change: those here own one and keep it.
fn watch<T: AsRawFd>(source: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(source)
}

/// The eventfd only ends the sleep; what there is to do is in the mailboxes.
async fn answer_bell(bell: AsyncFd<OwnedFd>) {
    while let Ok(mut ready) = bell.readable().await {
        let _ = ready.try_io(|bell| Ok(rustix::io::read(bell, &mut [0u8; 8])?));
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
        thread.ports.values().for_each(|port| port.sweep());
        let now = Instant::now();
        let limits = &thread.configuration.settings.http;
        thread.clocks.borrow().values().for_each(|clock| clock.check(now, limits));
    }
}

async fn accept(thread: Rc<Thread>, listening: AsyncFd<Listening>, place: usize) {
    loop {
        let Ok(mut ready) = listening.readable().await else { return };
        match ready.try_io(|listening| listening.get_ref().accept()) {
            Err(_would_block) => {}
            Ok(Ok(accepted)) => thread.distribute(accepted, place),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot accept connections; they wait in the backlog (see `ulimit -n`)");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

// === impl Listening ===

impl Listening {
    fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listening::Tcp(listener) => {
                let (stream, remote) = acceptfrom_with(listener, ACCEPTED)?;
                let remote = remote.and_then(|remote| remote.try_into().ok());
                let remote = remote.ok_or(io::Error::from(io::ErrorKind::ConnectionAborted))?;
                Ok(Accepted::Tcp(stream.into(), remote))
            }
            Listening::Unix(listener, path) => {
                Ok(Accepted::Unix(accept_with(listener, ACCEPTED)?.into(), path.clone()))
            }
        }
    }

    /// Another handle of the same socket, for another thread.
    pub fn try_clone(&self) -> io::Result<Listening> {
        Ok(match self {
            Listening::Tcp(listener) => Listening::Tcp(listener.try_clone()?),
            Listening::Unix(listener, path) => Listening::Unix(listener.try_clone()?, path.clone()),
        })
    }
}

impl AsRawFd for Listening {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listening::Tcp(listener) => listener.as_fd(),
            Listening::Unix(listener, _) => listener.as_fd(),
        }
    }
}

// === impl Thread ===

impl Thread {
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

    /// Whether the thread ends as soon as its requests are answered.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Whether answers are logged.
    pub fn logs_access(&self) -> bool {
        self.access_log.borrow().is_on()
    }

    /// Keeps a connection, or gives it to a thread that has clearly fewer.
    fn distribute(self: &Rc<Self>, accepted: Accepted, listener: usize) {
        let load = |n: usize| self.loads[n].load(Ordering::Relaxed);
        let least = (0..self.loads.len()).fold(self.index, |least, n| if load(n) < load(least) { n } else { least });
        // All threads accept: a few more or less are not worth waking another one.
        if load(self.index) <= load(least) + load(least) / 4 + 8 {
            self.spawn(accepted, listener);
        } else {
            self.loads[least].fetch_add(1, Ordering::Relaxed);
            let sent = self.everyone[least].send(Command::Serve(accepted, listener));
            self.loads[least].fetch_sub(1, Ordering::Relaxed);
            if let Err(mpsc::error::SendError(Command::Serve(accepted, listener))) = sent {
                self.spawn(accepted, listener);
            }
        }
    }

    fn spawn(self: &Rc<Self>, accepted: Accepted, listener: usize) {
        self.loads[self.index].fetch_add(1, Ordering::Relaxed);
        let thread = Rc::clone(self);
        spawn_local(async move {
            connection::serve(Rc::clone(&thread), accepted, listener).await;
            thread.loads[thread.index].fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn prepare_to_sleep(&self) {
        self.access_log.borrow_mut().flush();
        for port in self.ports.values() {
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
        }
    }

    fn woke(&self) {
        for port in self.ports.values() {
            port.woke();
            port.drain();
        }
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
