//! Connects to an upstream, with a timeout.

use crate::backends::connecting::{self, KnownAddresses, NotConnected, PathOwner};
use crate::backends::proxy::connection::socket::{UpstreamSocket, UpstreamTransport};
use crate::backends::proxy::tls::handshake::ServerTls;
use crate::file_access::FilesUnavailable;
use howdah_config::Endpoint;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No answer within this time.
    Timeout(Duration),
    /// The server or the kernel refused the connection.
    Refused(io::Error),
    /// The file system of its Unix socket does not answer.
    File(FilesUnavailable),
    /// There is no TLS on it, for this reason.
    Tls(String),
    /// The handshake of TLS took longer than this time.
    TlsTimeout(Duration),
}

/// Connects within this time, with TLS if the server has it.
///
/// # Errors
/// When no server listens there, or none answers in time.
pub async fn connect(
    endpoint: &Endpoint,
    owner: PathOwner,
    tls: Option<&ServerTls>,
    known: &KnownAddresses,
    limit: Duration,
) -> Result<UpstreamSocket, ConnectError> {
    let deadline = Instant::now() + limit;
    let transport = match timeout_at(deadline, connecting::connect(endpoint, owner, known, deadline)).await {
        Err(_) => return Err(ConnectError::Timeout(limit)),
        Ok(Err(NotConnected::File(reason))) => return Err(ConnectError::File(reason)),
        Ok(Err(NotConnected::System(error))) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(ConnectError::Timeout(limit));
        }
        Ok(Err(NotConnected::System(error))) => return Err(ConnectError::Refused(error)),
        Ok(Ok(transport)) => transport,
    };
    let Some(tls) = tls else { return Ok(UpstreamSocket::new(UpstreamTransport::Plain(transport))) };
    match timeout_at(deadline, tls.handshake(transport)).await {
        Err(_) => Err(ConnectError::TlsTimeout(limit)),
        Ok(Err(reason)) => Err(ConnectError::Tls(reason)),
        Ok(Ok(stream)) => Ok(UpstreamSocket::new(UpstreamTransport::Tls(Box::new(stream)))),
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(limit) => write!(f, "no connection within {} s", limit.as_secs_f64()),
            Self::Refused(error) => write!(f, "no connection: {error}"),
            Self::File(reason) => write!(f, "no connection: {}", NotConnected::File(*reason)),
            Self::Tls(reason) => write!(f, "no TLS connection: {reason}"),
            Self::TlsTimeout(limit) => {
                write!(f, "no TLS connection within {} s; is its port for HTTPS?", limit.as_secs_f64())
            }
        }
    }
}
