//! Connects a socket to an endpoint.

use crate::backends::connecting::known_addresses::KnownAddresses;
use crate::net::transport::Transport;
use howdah_config::Endpoint;
use howdah_protocol::sockets::application_socket::ApplicationSocket;
use howdah_protocol::sockets::refused_descriptors::refuse_descriptors;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::{TcpStream, UnixSocket, UnixStream};
use tokio::time::{Instant, sleep, timeout};

/// Which user can decide where the path of a Unix socket leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathOwner {
    /// The operator, in the configuration. Links are followed.
    Operator,
    /// The user of an HTTP application, in a folder that howdah has made for its sockets. No link is followed.
    Application,
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
/// is full, this waits, also after the deadline.
///
/// # Errors
/// When no server listens there.
pub async fn connect(
    endpoint: &Endpoint,
    owner: PathOwner,
    known: &KnownAddresses,
    deadline: Instant,
) -> io::Result<Transport> {
    match endpoint {
        Endpoint::Tcp(address) => connect_tcp(address).await,
        Endpoint::Name { host, port } => {
            let addresses = known.of(host, *port).await?;
            let result = connect_any(&addresses, deadline).await;
            if result.is_ok() {
                return result;
            }
            known.expire();
            // The server may have moved since its name was resolved.
            let resolved = known.of(host, *port).await?;
            if resolved == addresses { result } else { connect_any(&resolved, deadline).await }
        }
        Endpoint::Unix(path) => connect_unix(path, owner).await,
        Endpoint::Abstract(name) => connect_unix(Path::new(&format!("\0{name}")), PathOwner::Operator).await,
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
async fn connect_unix(path: &Path, owner: PathOwner) -> io::Result<Transport> {
    let mut in_vain = None;
    loop {
        let connected = match owner {
            PathOwner::Operator => connect_path(path).await,
            PathOwner::Application => connect_application(path).await,
        };
        match connected {
            Ok(stream) => return Ok(Transport::Unix(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let path = path.as_os_str().as_encoded_bytes();
                in_vain.get_or_insert_with(|| InVain::begin(path));
                sleep(BACKLOG_PAUSE.max(BACKLOG_INTERVAL * InVain::count(path))).await;
            }
            Err(error) => return Err(error),
        }
    }
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
