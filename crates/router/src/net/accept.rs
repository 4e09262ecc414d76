//! Listening sockets: the thread whose turn it is accepts from all of them.
//!
//! A listener that is removed is emptied first: the clients in its backlog have been promised a connection.

use crate::net::accept_turn::ThreadTurn;
use crate::net::connection_limit::ConnectionPermit;
use crate::net::transport::Accepted;
use crate::net::watch::watch;
use crate::report::spawn_essential;
use howdah_protocol::sockets::backlog::longest_backlog;
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, acceptfrom_with, getsockname};
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// A listening socket.
#[derive(Debug)]
pub enum Listening {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a unix socket, with its name.
    Unix(UnixListener, String),
}

/// The way by which a connection came in.
pub struct Entrance {
    /// The listener's number.
    pub listener: u64,
    /// The TLS that the listener had when it accepted; `None` without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// How often the listener had withdrawn the access of its clients when it accepted.
    pub withdrawals: u64,
    /// The connection's permit; `None` for the last connections of a removed listener, which are accepted in any case.
    pub permit: Option<ConnectionPermit>,
}

/// The thread that accepts.
pub trait Acceptor: 'static {
    /// A permit for a connection that may be accepted; `None` at the limit.
    fn permit(&self) -> Option<ConnectionPermit>;

    /// How often this listener has withdrawn the access of its clients.
    fn withdrawals(&self, listener: u64) -> u64;

    /// A connection cannot be accepted. The next attempt follows after a pause.
    fn cannot_accept(&self, error: &io::Error);

    /// Takes an accepted connection.
    fn take(self: &Rc<Self>, accepted: Accepted, entrance: Entrance);
}

/// A task that accepts from a listener, until this is dropped or stopped. A `D` is dropped when a stopped listener's
/// socket is closed.
pub struct Accepting<D> {
    tls: Rc<RefCell<Option<Arc<ServerConfig>>>>,
    stop: oneshot::Sender<D>,
}

/// The most unsent bytes in a socket beyond those that the network takes. More of them would only be copied early and
/// fall out of the processor's cache. (They do not limit the window of a fast, distant client: tcp(7), TCP_NOTSENT_LOWAT.)
const UNSENT_BYTES: u32 = 32 * 1024;
/// The flags of an accepted socket.
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// The pause when there are no descriptors or permits.
const PAUSE: Duration = Duration::from_millis(20);
/// How many connections are accepted before those that are there have their turn: clients that connect without a pause must
/// not stop all others.
const ACCEPTED_AT_ONCE: u32 = 16;
/// How many connections are accepted at most when the listener ends: as many as its backlog can have (listen(2)). Clients could fill it
/// again without end.
static ACCEPTED_AT_THE_END: LazyLock<u32> = LazyLock::new(|| {
    // It may have been larger when the socket began to listen, and the kernel lets one more in.
    longest_backlog().unwrap_or(u32::from(u16::MAX)).max(USUAL_BACKLOG).saturating_add(1)
});
/// The kernel's `net.core.somaxconn` since Linux 5.4.
const USUAL_BACKLOG: u32 = 4096;
/// The pause when a socket cannot be watched.
const WATCH_AGAIN: Duration = Duration::from_secs(1);
/// The least time between two log lines about missing descriptors.
const LOG_PAUSE: Duration = Duration::from_secs(10);

thread_local! {
    /// When missing descriptors were last logged.
    static LOGGED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Begins to accept on this thread, when it is its turn.
pub fn accept<D: 'static>(
    acceptor: &Rc<impl Acceptor>,
    turn: ThreadTurn,
    id: u64,
    listening: &Arc<Listening>,
    tls: Option<Arc<ServerConfig>>,
) -> Accepting<D> {
    let (stop, mut stopped) = oneshot::channel();
    let tls = Rc::new(RefCell::new(tls));
    let accepting = Accepting { tls: Rc::clone(&tls), stop };
    let listening = Arc::clone(listening);
    let acceptor = Rc::clone(acceptor);
    let entrance = {
        let acceptor = Rc::clone(&acceptor);
        move |permit| {
            let withdrawals = acceptor.withdrawals(id);
            Entrance { listener: id, tls: tls.borrow().clone(), withdrawals, permit }
        }
    };
    spawn_essential(async move {
        let when_closed = loop {
            tokio::select! {
                biased;
                dropped = &mut stopped => break dropped.ok(),
                () = turn.begins() => {}
            }
            tokio::select! {
                biased;
                dropped = &mut stopped => break dropped.ok(),
                () = accept_in_turn(&acceptor, &turn, &listening, &entrance) => {}
            }
        };
        for number in 1..=*ACCEPTED_AT_THE_END {
            if number.is_multiple_of(ACCEPTED_AT_ONCE) {
                yield_now().await;
            }
            match listening.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Missing descriptors may last: the listener's end does not wait for them.
                Err(error) if error.kind() != io::ErrorKind::ConnectionAborted => break,
                accepted => take(&acceptor, entrance(None), accepted).await,
            }
        }
        drop(listening);
        drop(when_closed);
    });
    accepting
}

/// Accepts until the turn ends. Only a thread whose turn it is watches the socket: a new connection wakes no other one.
async fn accept_in_turn(
    acceptor: &Rc<impl Acceptor>,
    turn: &ThreadTurn,
    listening: &Arc<Listening>,
    entrance: &impl Fn(Option<ConnectionPermit>) -> Entrance,
) {
    let watched = match watch(Arc::clone(listening)) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::error!(%error, "a thread cannot watch a listener, and tries again (see /proc/sys/fs/epoll/max_user_watches)");
            return tokio::time::sleep(WATCH_AGAIN).await;
        }
    };
    let mut accepted_at_once = 0;
    loop {
        if accepted_at_once >= ACCEPTED_AT_ONCE {
            accepted_at_once = 0;
            yield_now().await;
        }
        let mut ready = tokio::select! {
            biased;
            () = turn.ends() => return,
            ready = watched.readable() => match ready {
                Ok(ready) => ready,
                Err(_) => return,
            },
        };
        let Some(permit) = acceptor.permit() else {
            // Each thread in its turn closes connections that wait for another request.
            tokio::time::sleep(PAUSE / u32::try_from(turn.threads()).unwrap_or(u32::MAX)).await;
            return turn.pass_on();
        };
        if let Ok(accepted) = ready.try_io(|listening| listening.get_ref().accept()) {
            take(acceptor, entrance(Some(permit)), accepted).await;
            accepted_at_once += 1;
        }
    }
}

async fn take(acceptor: &Rc<impl Acceptor>, entrance: Entrance, accepted: io::Result<Accepted>) {
    match accepted {
        Ok(accepted) => acceptor.take(accepted, entrance),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
        Err(error) => {
            acceptor.cannot_accept(&error);
            if LOGGED_AT.get().is_none_or(|at| at.elapsed() > LOG_PAUSE) {
                LOGGED_AT.set(Some(Instant::now()));
                tracing::error!(%error, "cannot accept connections; they wait in the backlog (see `ulimit -n`)");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

// === impl Accepting ===

impl<D> Accepting<D> {
    /// Stops accepting, and drops `when_closed` when the socket is closed.
    pub fn stop(self, when_closed: D) {
        let _ = self.stop.send(when_closed);
    }

    /// Sets the TLS of the connections that are accepted from now on.
    pub fn set_tls(&self, tls: Option<Arc<ServerConfig>>) {
        self.tls.replace(tls);
    }
}

// === impl Listening ===

impl Listening {
    /// Takes a listening socket, and sets the options that accepted sockets inherit. `path`: that of a Unix socket.
    ///
    /// # Errors
    /// When it is not a listening socket.
    pub fn new(socket: OwnedFd, path: Option<String>) -> io::Result<Listening> {
        let address = getsockname(&socket)?;
        if let Ok(unix) = SocketAddrUnix::try_from(address) {
            let name = match unix.abstract_name() {
                Some(name) => format!("@{}", String::from_utf8_lossy(name)),
                None => path.unwrap_or_default(),
            };
            return Ok(Listening::Unix(socket.into(), name));
        }
        let socket = socket2::Socket::from(socket);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        Ok(Listening::Tcp(socket.into()))
    }

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
