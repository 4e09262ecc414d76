//! A thread's ports to generations, and the eventfds by which workers wake the thread.

use crate::backends::php::{GenerationPort, SharedGeneration};
use crate::net::watch::watch;
use crate::report::spawn_essential;
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

/// All ports of a thread that are in use: those of the active view, and of older ones.
pub struct Ports {
    /// The thread's index.
    thread: u16,
    known: RefCell<Vec<KnownPort>>,
}

/// A port, as long as it is in use.
struct KnownPort {
    port: Weak<GenerationPort>,
    /// Waits for the workers' eventfd.
    bell: Option<AbortHandle>,
}

/// How often mailboxes are emptied in a row before other tasks get a turn.
const DRAINS_BEFORE_SLEEP: u32 = 8;

// === impl Ports ===

impl Ports {
    /// The ports of the thread with this index.
    pub fn new(thread: u16) -> Ports {
        Ports { thread, known: RefCell::default() }
    }

    /// The port to a generation: the existing one, or a new one.
    pub fn port(&self, generation: &Arc<SharedGeneration>) -> Rc<GenerationPort> {
        // Not within the borrow.
        let pools = generation.pools.iter().map(|pool| self.port(&pool.generation)).collect();
        let mut ports = self.known.borrow_mut();
        let known =
            ports.iter().filter_map(|known| known.port.upgrade()).find(|port| port.generation.id == generation.id);
        if let Some(port) = known {
            return port;
        }
        let port = Rc::new(GenerationPort::new(Arc::clone(generation), pools, self.thread));
        let bell = generation.take_bell(usize::from(self.thread)).and_then(|bell| match watch(bell) {
            Ok(bell) => Some(spawn_essential(answer_bell(bell)).abort_handle()),
            Err(error) => {
                tracing::error!(%error, "a thread cannot watch its workers (see `ulimit -n`); it polls them every 250 ms");
                None
            }
        });
        ports.push(KnownPort { port: Rc::downgrade(&port), bell });
        port
    }

    /// Visits each port.
    pub fn for_each(&self, mut visit: impl FnMut(&Rc<GenerationPort>)) {
        for port in self.known.borrow().iter().filter_map(|known| known.port.upgrade()) {
            visit(&port);
        }
    }

    /// Forgets ports that are no longer in use, and sweeps the others.
    pub fn sweep(&self) {
        self.known.borrow_mut().retain(|known| known.port.strong_count() > 0);
        self.for_each(GenerationPort::sweep);
    }

    /// Empties the mailboxes, and announces in them that the thread is about to sleep. `false` if a mailbox fills as fast
    /// as it is emptied, or has more than one turn may move: other tasks must get a turn before the thread goes on.
    pub fn prepare_to_sleep(&self) -> bool {
        let mut may_sleep = true;
        self.for_each(|port| {
            port.begin_turn();
            let mut rounds = 0;
            while !port.prepare_to_sleep() {
                port.drain();
                rounds += 1;
                if rounds == DRAINS_BEFORE_SLEEP || port.has_spent_its_turn() {
                    may_sleep = false;
                    break;
                }
            }
            port.end_turn();
        });
        may_sleep
    }

    /// Empties the mailboxes of a thread that is awake, as far as one turn may.
    pub fn begin_round(&self) {
        self.for_each(|port| {
            port.begin_turn();
            port.drain();
            port.end_turn();
        });
    }

    /// Announces in the mailboxes that the thread is awake.
    pub fn woke(&self) {
        self.for_each(|port| port.woke());
    }
}

impl Drop for KnownPort {
    fn drop(&mut self) {
        if let Some(bell) = &self.bell {
            bell.abort();
        }
    }
}

/// Empties the eventfd. It only ends the thread's sleep; the work is in the mailboxes.
async fn answer_bell(bell: AsyncFd<OwnedFd>) {
    while let Ok(mut ready) = bell.readable().await {
        if ready.try_io(|bell| Ok(empty(bell.get_ref())?)).is_ok() {
            // A read leaves nothing: a second one would only find that. A write from now on is a new event.
            ready.clear_ready();
        }
    }
}

/// Reads without waiting. The workers share the eventfd, and could make reads of it wait.
fn empty(bell: &OwnedFd) -> rustix::io::Result<usize> {
    const NO_OFFSET: u64 = u64::MAX;
    let mut count = [0; 8];
    match rustix::io::preadv2(bell, &mut [IoSliceMut::new(&mut count)], NO_OFFSET, ReadWriteFlags::NOWAIT) {
        // Linux before 5.8.
        Err(Errno::OPNOTSUPP) => rustix::io::read(bell, &mut count),
        result => result,
    }
}
