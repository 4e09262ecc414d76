//! Listening sockets: every thread accepts from all of them.
//!
//! A listener that is removed is emptied first: who is in its backlog has been promised a connection.

use crate::net::room::Place;
use crate::net::socket::Accepted;
use crate::process::thread::Thread;
use crate::supervisor_link::TellOnDrop;
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, acceptfrom_with, getsockname};
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// A listening socket.
#[derive(Debug)]
pub enum Listening {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a unix socket, with its name.
    Unix(UnixListener, String),
}

/// Where a connection came in.
pub struct Entrance {
    /// The listener's number.
    pub listener: u64,
    /// The TLS that the listener had when it accepted; `None` is none.
    pub tls: Option<Arc<ServerConfig>>,
    /// The connection's place; `None` for the last ones of a listener that is removed, which are owed one.
    #[expect(dead_code, reason = "its drop is its use")]
    pub place: Option<Place>,
}

/// A thread accepts from a listener until this is dropped, or stopped.
pub struct Accepting {
    tls: Rc<RefCell<Option<Arc<ServerConfig>>>>,
    stop: oneshot::Sender<Arc<TellOnDrop>>,
}

/// Bytes that wait in a socket beyond what the network takes: more would only be copied early and fall out of the
/// processor's cache. (The window of a fast, distant client is not limited by it: tcp(7), TCP_NOTSENT_LOWAT.)
const UNSENT_BYTES: u32 = 32 * 1024;
/// What an accepted socket is from its beginning.
const ACCEPTED: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
/// How long to wait when there are no descriptors, or no room.
const PAUSE: Duration = Duration::from_millis(20);
/// How long it is not said again that there are no descriptors.
const SAID: Duration = Duration::from_secs(10);

thread_local! {
    /// When it was said that there are no descriptors.
    static SAID_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Begins to accept on this thread.
///
/// # Errors
/// When no more descriptors can be watched.
pub fn accept(
    thread: &Rc<Thread>,
    id: u64,
    listening: &Arc<Listening>,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<Accepting> {
    let (stop, mut stopped) = oneshot::channel();
    let tls = Rc::new(RefCell::new(tls));
    let accepting = Accepting { tls: Rc::clone(&tls), stop };
    let entrance = move |place| Entrance { listener: id, tls: tls.borrow().clone(), place };
    let listening = crate::process::thread::watch(listening.try_clone()?)?;
    let thread = Rc::clone(thread);
    spawn_local(async move {
        // Whom to tell that the listener is closed.
        let mut closed = None;
        loop {
            tokio::select! {
                biased;
                tell = &mut stopped => {
                    closed = tell.ok();
                    break;
                }
                ready = listening.readable() => match ready {
                    Ok(mut ready) => match thread.room() {
                        None => tokio::time::sleep(PAUSE).await,
                        place => {
                            if let Ok(accepted) = ready.try_io(|listening| listening.get_ref().accept()) {
                                took(&thread, entrance(place), accepted).await;
                            }
                        }
                    },
                    Err(_) => break,
                },
            }
        }
        loop {
            match listening.get_ref().accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // It may be gone for good: it is not waited for descriptors.
                Err(error) if error.kind() != io::ErrorKind::ConnectionAborted => break,
                accepted => took(&thread, entrance(None), accepted).await,
            }
        }
        drop(listening);
        drop(closed);
    });
    Ok(accepting)
}

async fn took(thread: &Rc<Thread>, entrance: Entrance, accepted: io::Result<Accepted>) {
    match accepted {
        Ok(accepted) => thread.distribute(accepted, entrance),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
        Err(error) => {
            if SAID_AT.get().is_none_or(|at| at.elapsed() > SAID) {
                SAID_AT.set(Some(Instant::now()));
                tracing::error!(%error, "cannot accept connections; they wait in the backlog (see `ulimit -n`)");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

// === impl Accepting ===

impl Accepting {
    /// Accepts no more; the other side hears of it when the socket is closed.
    pub fn stop(self, tell: &Arc<TellOnDrop>) {
        let _ = self.stop.send(Arc::clone(tell));
    }

    /// What is accepted from now on has this TLS.
    pub fn set_tls(&self, tls: Option<Arc<ServerConfig>>) {
        self.tls.replace(tls);
    }
}

// === impl Listening ===

impl Listening {
    /// Takes a listening socket, and sets what accepted ones inherit.
    ///
    /// # Errors
    /// When it is no such socket.
    pub fn new(socket: OwnedFd) -> io::Result<Listening> {
        let address = getsockname(&socket)?;
        if let Ok(unix) = SocketAddrUnix::try_from(address) {
            let name = match unix.abstract_name() {
                Some(name) => format!("@{}", String::from_utf8_lossy(name)),
                None => unix.path().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
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

    /// Another handle of the same socket, for another thread.
    fn try_clone(&self) -> io::Result<Listening> {
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
