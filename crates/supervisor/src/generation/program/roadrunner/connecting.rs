//! A worker connects: its connection is distinguished from those of other processes, which are refused.
//!
//! The kernel names the process at the other end of a Unix socket, and the user at the other end of a TCP connection.
//! There, the worker names its process in the handshake. The process must belong to the process group that howdah
//! started.

use crate::os::tcp_peers;
use howdah_protocol::sockets::tcp_peer::is_reset;
use rustix::process::{Pid, getpgid};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net;
use tokio::time::sleep;

/// A socket that listens, and does not block.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The worker that must connect.
#[derive(Clone, Debug)]
pub struct WorkerPeer {
    /// Its user.
    pub user: u32,
    /// The process that howdah started. It leads a process group.
    pub leader: Pid,
    /// The address to which it connects.
    pub address: String,
}

/// Accepts connections. Dropping it closes the listener.
pub struct Accepting {
    listener: AsyncListener,
    peer: WorkerPeer,
    has_warned: bool,
    has_warned_of_unknown: bool,
}

/// A connection of the application's user.
pub struct Accepted {
    /// The connection.
    pub socket: OwnedFd,
    /// Its halves, for the handshake.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Whether it is certain which process has made it.
    pub is_proven: bool,
}

/// The connection of a worker, once it has answered the handshake.
#[derive(Clone, Debug, Default)]
pub struct Connection(Arc<Mutex<Option<OwnedFd>>>);

enum AsyncListener {
    Unix(net::UnixListener),
    Tcp(net::TcpListener),
}

/// The pause after a connection that was refused: another process must not keep the supervisor busy.
const PAUSE: Duration = Duration::from_millis(20);

// === impl Accepting ===

impl Accepting {
    /// Begins to accept connections of this worker.
    ///
    /// # Errors
    /// When the event loop cannot watch the listener, or no thread can be started.
    pub fn begin(listener: Listener, peer: WorkerPeer) -> io::Result<Accepting> {
        let listener = match listener {
            Listener::Unix(listener) => AsyncListener::Unix(net::UnixListener::from_std(listener)?),
            Listener::Tcp(listener) => {
                tcp_peers::start()?;
                AsyncListener::Tcp(net::TcpListener::from_std(listener)?)
            }
        };
        Ok(Accepting { listener, peer, has_warned: false, has_warned_of_unknown: false })
    }

    /// The next connection of the application's user.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub async fn next(&mut self) -> io::Result<Accepted> {
        loop {
            match &self.listener {
                AsyncListener::Unix(listener) => {
                    let (socket, _) = listener.accept().await?;
                    let (user, pid) = socket.peer_cred().map(|peer| (peer.uid(), peer.pid()))?;
                    if user == self.peer.user && pid.is_some_and(|pid| self.peer.is_process(pid.into())) {
                        let socket = socket.into_std()?;
                        let copy = net::UnixStream::from_std(socket.try_clone()?)?;
                        return Ok(Accepted::new(socket.into(), copy, true));
                    }
                    self.refuse(&format!("process {} of user id {user}", pid.unwrap_or_default())).await;
                }
                AsyncListener::Tcp(listener) => {
                    let (socket, peer) = listener.accept().await?;
                    let own = socket.local_addr()?;
                    let user = tcp_peers::user_of(peer, own).await;
                    if is_reset(&socket) {
                        // It may have been anyone's: its port may belong to another one.
                        continue;
                    }
                    if user == Some(self.peer.user) {
                        // A request is one write, and waits for no other.
                        socket.set_nodelay(true)?;
                        let socket = socket.into_std()?;
                        let copy = net::TcpStream::from_std(socket.try_clone()?)?;
                        return Ok(Accepted::new(socket.into(), copy, false));
                    }
                    // Without a pause: any user may connect, and would fill the backlog, so that the worker cannot connect.
                    match user {
                        Some(user) => self.warn(&format!("user id {user} at {peer}")),
                        None => self.warn_of_unknown(peer),
                    }
                }
            }
        }
    }

    /// Whether the process that a worker named may be this worker.
    pub fn is_process(&self, pid: i64) -> bool {
        self.peer.is_process(pid)
    }

    /// After a connection of another process. It is closed.
    pub async fn refuse(&mut self, process: &str) {
        self.warn(process);
        sleep(PAUSE).await;
    }

    fn warn(&mut self, process: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            self.peer.warn_of(process);
        }
    }

    /// A peer that closes its connection at once has no user. The warning that names a user comes nevertheless.
    fn warn_of_unknown(&mut self, peer: SocketAddr) {
        if !self.has_warned && !std::mem::replace(&mut self.has_warned_of_unknown, true) {
            self.peer.warn_of(&format!("an unknown user at {peer}"));
        }
    }
}

// === impl Accepted ===

impl Accepted {
    fn new(socket: OwnedFd, copy: impl AsyncRead + AsyncWrite + Send + 'static, is_proven: bool) -> Accepted {
        // The halves of the streams' own split would shut the connection down.
        let (reader, writer) = split(copy);
        Accepted { socket, writer: Box::new(writer), reader: Box::new(reader), is_proven }
    }
}

// === impl Connection ===

impl Connection {
    /// Keeps the connection of the worker.
    pub fn keep(&self, connection: OwnedFd) {
        *self.lock() = Some(connection);
    }

    /// The connection; it is complete at any time.
    pub fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WorkerPeer ===

impl WorkerPeer {
    fn is_process(&self, pid: i64) -> bool {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| getpgid(Some(pid)).is_ok_and(|group| group == self.leader))
    }

    fn warn_of(&self, other: &str) {
        let WorkerPeer { user, leader, address } = self;
        let leader = leader.as_raw_pid();
        tracing::warn!(
            "refused a connection of {other} to {address}: only the worker with the pid {leader}, of user id {user}, may connect"
        );
    }
}
