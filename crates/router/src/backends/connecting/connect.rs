//! Connects a socket to an endpoint.
//!
//! The path of a Unix socket may be in a file system that hangs. An event loop connects only if it certainly does not wait
//! ([`open_socket`]). Otherwise a thread connects, with a timeout.

use crate::backends::connecting::known_addresses::KnownAddresses;
use crate::file_access::{FilesUnavailable, Place, on_file_thread_unlogged, open_socket};
use crate::net::transport::Transport;
use howdah_config::Endpoint;
use howdah_protocol::sockets::application_socket::ApplicationSocket;
use howdah_protocol::sockets::refused_descriptors::{self, refuse_descriptors};
use howdah_protocol::{descriptor_path, trusted_path};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::{TcpStream, UnixSocket, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Which user can decide where the path of a Unix socket leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOwner {
    /// The operator, in the configuration. Links are followed as [`trusted_path`] has it.
    Operator,
    /// The user of an HTTP application, in a folder that howdah has made for its sockets. No link is followed.
    Application,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum NotConnected {
    /// An error of the system. `TimedOut`: within the time.
    System(io::Error),
    /// The file system of a Unix socket does not answer.
    File(FilesUnavailable),
}

/// A connection that waits for room in the backlog of a Unix socket.
struct InVain<'p>(&'p [u8]);

/// The pause before a retry when the backlog of a Unix socket is full. For TCP the kernel retries.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);
/// The pause is longer with many connections: on average, those of a thread to one socket are retried in this interval.
/// Thousands of them may wait for a server that accepts nothing.
const BACKLOG_INTERVAL: Duration = Duration::from_micros(500);

/// How many addresses of a name are tried for a request: its zone may have thousands.
const MOST_ADDRESSES: usize = 16;

thread_local! {
    /// How many connections of the thread wait for room, by path.
    static IN_VAIN: RefCell<HashMap<Vec<u8>, u32>> = RefCell::default();
}

/// Connects a socket. Each address of a name has a part of the time until the deadline. While the backlog of a Unix socket
/// is full, this waits, also after the deadline. Its file system has the time until the deadline.
///
/// # Errors
/// When no server listens there.
pub async fn connect(
    endpoint: &Endpoint,
    owner: PathOwner,
    known: &KnownAddresses,
    deadline: Instant,
) -> Result<Transport, NotConnected> {
    match endpoint {
        Endpoint::Tcp(address) => Ok(connect_tcp(address).await?),
        Endpoint::Name { host, port } => {
            let addresses = known.of(host, *port).await?;
            let result = connect_any(&addresses, deadline).await;
            if result.is_ok() {
                return Ok(result?);
            }
            known.expire();
            // The server may have moved since its name was resolved.
            let resolved = known.of(host, *port).await?;
            Ok(if resolved == addresses { result } else { connect_any(&resolved, deadline).await }?)
        }
        Endpoint::Unix(path) => connect_unix(path, owner, deadline).await,
        Endpoint::Abstract(name) => connect_unix(Path::new(&format!("\0{name}")), PathOwner::Operator, deadline).await,
    }
}

/// Connects to the first address that accepts, of the first ones. Each has an equal part of the time that is left.
async fn connect_any(addresses: &[SocketAddr], deadline: Instant) -> io::Result<Transport> {
    let mut result = Err(io::Error::other("the name has no address"));
    let addresses = &addresses[..addresses.len().min(MOST_ADDRESSES)];
    for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let part = deadline.saturating_duration_since(Instant::now()) / left;
        result = match timeout(part, connect_tcp(address)).await {
            Ok(Ok(transport)) => return Ok(transport),
            Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("{address}: {error}"))),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
    }
    result
}

async fn connect_tcp(address: &SocketAddr) -> io::Result<Transport> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Transport::Tcp(stream))
}

/// A path that begins with NUL is an abstract name.
async fn connect_unix(path: &Path, owner: PathOwner, deadline: Instant) -> Result<Transport, NotConnected> {
    let mut in_vain = None;
    loop {
        let connected = match owner {
            PathOwner::Operator => connect_operator(path, deadline).await,
            PathOwner::Application => Ok(connect_application(path).await?),
        };
        match connected {
            Ok(stream) => return Ok(Transport::Unix(stream)),
            Err(NotConnected::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                let path = path.as_os_str().as_encoded_bytes();
                in_vain.get_or_insert_with(|| InVain::begin(path));
                sleep(BACKLOG_PAUSE.max(BACKLOG_INTERVAL * InVain::count(path))).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn connect_operator(path: &Path, deadline: Instant) -> Result<UnixStream, NotConnected> {
    if path.as_os_str().as_encoded_bytes().starts_with(b"\0") {
        return Ok(connect_path(path).await?);
    }
    match open_socket(path)? {
        Some(socket) => Ok(connect_path(&descriptor_path(&socket)).await?),
        None => connect_elsewhere(path, deadline).await,
    }
}

/// On a thread: a connection to a socket, too, may ask the file system.
async fn connect_elsewhere(path: &Path, deadline: Instant) -> Result<UnixStream, NotConnected> {
    let (place, path) = (Place::of(path), path.to_owned());
    let connect = on_file_thread_unlogged(&place, move || {
        let socket = trusted_path::socket(&path)?;
        refused_descriptors::connect(&descriptor_path(&socket))
    });
    let connected =
        timeout_at(deadline, connect).await.unwrap_or(Err(FilesUnavailable::Hanging)).map_err(NotConnected::File)?;
    Ok(UnixStream::from_std(connected?)?)
}

async fn connect_application(path: &Path) -> io::Result<UnixStream> {
    let socket = ApplicationSocket::open(path)?;
    connect_path(&socket.path()).await
}

async fn connect_path(path: &Path) -> io::Result<UnixStream> {
    let socket = UnixSocket::new_stream()?;
    refuse_descriptors(&socket);
    socket.connect(path).await
}

// === impl NotConnected ===

impl From<io::Error> for NotConnected {
    fn from(error: io::Error) -> NotConnected {
        NotConnected::System(error)
    }
}

impl fmt::Display for NotConnected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotConnected::System(error) => write!(formatter, "{error}"),
            NotConnected::File(reason) => write!(formatter, "{reason} the file system of its socket"),
        }
    }
}

// === impl InVain ===

impl InVain<'_> {
    fn begin(path: &[u8]) -> InVain<'_> {
        IN_VAIN.with_borrow_mut(|counts| *counts.entry(path.to_owned()).or_default() += 1);
        InVain(path)
    }

    /// How many there are.
    fn count(path: &[u8]) -> u32 {
        IN_VAIN.with_borrow(|counts| counts.get(path).copied().unwrap_or_default())
    }
}

impl Drop for InVain<'_> {
    fn drop(&mut self) {
        // At the end of the thread there is nothing left to count.
        let _ = IN_VAIN.try_with(|counts| {
            let mut counts = counts.borrow_mut();
            if let Some(count) = counts.get_mut(self.0) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(self.0);
                }
            }
        });
    }
}
