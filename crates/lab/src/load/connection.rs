//! One non-blocking connection to the server under load, and the request that is on its way.

use super::response::Response;
use super::tally::Failure;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its state.
    pub state: State,
    /// The bytes of the request.
    pub output: Vec<u8>,
    /// The number of them that were written.
    pub written: usize,
    /// The response, as far as it has arrived.
    pub response: Response,
    /// Whether it has had a response already.
    pub is_reused: bool,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server has not accepted it yet.
    Connecting,
    /// A request is being written, or its response is awaited.
    Busy,
    /// It has no request.
    Idle,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The index of its target.
    pub target: usize,
    /// The time from which its latency counts.
    pub due: Duration,
    /// The time at which the client gives up.
    pub deadline: Duration,
    /// Whether it may be sent again on a new connection if the server closes a used one instead of answering.
    pub may_repeat: bool,
}

/// The result of writing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All bytes.
    Complete,
    /// The socket's buffer is full.
    Partly,
    /// The connection is lost.
    Lost,
}

// === impl Endpoint ===

impl Endpoint {
    /// Whether it is this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Tcp(address) => address.ip().is_loopback(),
            Endpoint::Unix(_) => true,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

// === impl Connection ===

impl Connection {
    /// Begins to connect.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn open(endpoint: &Endpoint) -> Result<Connection, Failure> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let new = |family| socket_with(family, SocketType::STREAM, flags, None).map_err(|_| Failure::ConnectFailed);
        let (socket, connected) = match endpoint {
            Endpoint::Tcp(address) => {
                let socket = new(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                let connected = connect(&socket, address);
                (socket, connected)
            }
            Endpoint::Unix(path) => {
                let address = SocketAddrUnix::new(path).map_err(|_| Failure::ConnectFailed)?;
                let socket = new(AddressFamily::UNIX)?;
                let connected = connect(&socket, &address);
                (socket, connected)
            }
        };
        let state = match connected {
            Ok(()) => State::Busy,
            Err(Errno::INPROGRESS) => State::Connecting,
            Err(error) => return Err(connect_failure(error)),
        };
        let (output, response) = (Vec::new(), Response::default());
        Ok(Connection { socket, state, output, written: 0, response, is_reused: false })
    }

    /// The end of connecting.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn finish_connecting(&mut self) -> Result<(), Failure> {
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {
                self.state = State::Busy;
                Ok(())
            }
            Ok(Err(error)) | Err(error) => Err(connect_failure(error)),
        }
    }

    /// Writes as much of the request as the socket takes.
    pub fn write(&mut self) -> Written {
        while self.written < self.output.len() {
            match rustix::io::write(&self.socket, &self.output[self.written..]) {
                Ok(length) => self.written += length,
                Err(Errno::AGAIN) => return Written::Partly,
                Err(Errno::INTR) => {}
                Err(_) => return Written::Lost,
            }
        }
        Written::Complete
    }
}

fn connect_failure(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED | Errno::NOENT => Failure::ConnectRefused,
        // connect() of a unix socket returns it at once.
        Errno::AGAIN => Failure::ConnectBacklogFull,
        Errno::TIMEDOUT => Failure::ConnectTimeout,
        Errno::CONNRESET => Failure::Reset,
        _ => Failure::ConnectFailed,
    }
}
