//! Connects to an upstream, with a timeout.

use crate::net::transport::Transport;
use crate::proxy::connection::socket::UpstreamSocket;
use howdah_config::Endpoint;
use howdah_protocol::refused_descriptors::refuse_descriptors;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::net::{TcpStream, UnixSocket};
use tokio::time::{sleep, timeout};

/// The pause before a retry when the backlog of a Unix socket is full. For TCP the kernel retries.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No answer within this time.
    Timeout(Duration),
    /// The server or the kernel refused the connection.
    Refused(io::Error),
}

/// Connects within this time.
///
/// # Errors
/// When no server listens there, or none answers in time.
pub async fn connect(endpoint: &Endpoint, limit: Duration) -> Result<UpstreamSocket, ConnectError> {
    match timeout(limit, connect_without_timeout(endpoint)).await {
        Err(_) => Err(ConnectError::Timeout(limit)),
        Ok(result) => result.map(UpstreamSocket::new).map_err(ConnectError::Refused),
    }
}

async fn connect_without_timeout(endpoint: &Endpoint) -> io::Result<Transport> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Transport::Tcp(stream))
        }
        Endpoint::Unix(path) => connect_unix(path.as_os_str().as_encoded_bytes()).await,
        Endpoint::Abstract(name) => connect_unix(format!("\0{name}").as_bytes()).await,
    }
}

/// A path that begins with NUL is an abstract name.
async fn connect_unix(path: &[u8]) -> io::Result<Transport> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path);
    loop {
        let socket = UnixSocket::new_stream()?;
        refuse_descriptors(&socket);
        match socket.connect(path).await {
            Ok(stream) => return Ok(Transport::Unix(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(limit) => write!(f, "no connection within {} s", limit.as_secs_f64()),
            Self::Refused(error) => write!(f, "no connection: {error}"),
        }
    }
}
