//! The relay of a worker, which carries its requests: pipes, or a connection that the worker makes.

use crate::generation::program::roadrunner::handshake::Handshake;
use crate::generation::program::roadrunner::pipes::WorkerPipes;
use crate::generation::program::roadrunner::socket::{WorkerSocket, WorkerUser};
use crate::os::files::socket_folder::SocketFolder;
use crate::plan::program::ProgramPlan;
use howdah_config::Relay;
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The relay of a worker through all its restarts.
#[derive(Debug)]
pub enum WorkerRelay {
    /// Its standard input and output.
    Pipes(WorkerPipes),
    /// A socket to which it connects.
    Socket(WorkerSocket),
}

/// Makes a relay for each worker of a generation.
///
/// # Errors
/// When the folder of the sockets cannot be made.
pub fn choose(id: u64, plan: &ProgramPlan, kind: Relay) -> io::Result<Vec<WorkerRelay>> {
    let user = WorkerUser(plan.account.ids);
    let folder = match kind {
        Relay::Unix => Some(Arc::new(SocketFolder::create_for_clients(id, plan.account.ids)?)),
        Relay::Pipes | Relay::Tcp => None,
    };
    let relay = |number: u16| match (kind, &folder) {
        (Relay::Unix, Some(folder)) => WorkerRelay::Socket(WorkerSocket::unix(Arc::clone(folder), number, user)),
        (Relay::Tcp, _) => WorkerRelay::Socket(WorkerSocket::tcp(user)),
        _ => WorkerRelay::Pipes(WorkerPipes::default()),
    };
    Ok((1..=plan.processes).map(relay).collect())
}

// === impl WorkerRelay ===

impl WorkerRelay {
    /// Prepares it for another worker. Returns the standard input and output of the worker if they carry its requests.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn open(&mut self) -> io::Result<Option<(OwnedFd, OwnedFd)>> {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.open().map(Some),
            WorkerRelay::Socket(socket) => socket.open().map(|()| None),
        }
    }

    /// The value of `RR_RELAY`, after [`open`](Self::open).
    pub fn address(&self) -> String {
        match self {
            WorkerRelay::Pipes(_) => "pipes".to_owned(),
            WorkerRelay::Socket(socket) => socket.address(),
        }
    }

    /// Begins the handshake with the worker that leads this process group.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn begin_handshake(&mut self, leader: Pid) -> io::Result<Handshake> {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.begin_handshake(),
            WorkerRelay::Socket(socket) => socket.begin_handshake(leader),
        }
    }

    /// Why a worker is not ready, as a phrase, if its silence may have another reason than a slow boot.
    pub fn silence(&self) -> Option<String> {
        match self {
            WorkerRelay::Pipes(_) => None,
            WorkerRelay::Socket(socket) => {
                Some(format!("it has not connected to {} (RR_RELAY), or not answered there", socket.address()))
            }
        }
    }

    /// The descriptors for a router: the pipe of the requests and that of the answers, or the connection.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn for_router(&self) -> io::Result<Vec<OwnedFd>> {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.for_router(),
            WorkerRelay::Socket(socket) => socket.for_router(),
        }
    }

    /// Orders the worker to exit when it has finished its request.
    pub fn order_exit(&self) {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.order_exit(),
            WorkerRelay::Socket(socket) => socket.order_exit(),
        }
    }

    /// Text that a dead process wrote after `beginning` in place of frames, for an error message.
    pub fn last_text(&self, beginning: Option<Vec<u8>>) -> Option<String> {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.last_text(beginning),
            WorkerRelay::Socket(_) => None,
        }
    }

    /// The name of what a worker should not close, for a log line.
    pub fn name(&self) -> &'static str {
        match self {
            WorkerRelay::Pipes(_) => "pipes",
            WorkerRelay::Socket(_) => "connection",
        }
    }

    /// Closes our ends.
    pub fn close(&mut self) {
        match self {
            WorkerRelay::Pipes(pipes) => pipes.close(),
            WorkerRelay::Socket(socket) => socket.close(),
        }
    }
}
