//! Look-ups of host names. They have a pool of their own, because the system's resolver waits for servers.

use crate::{Pool, Work};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use tokio::net::TcpStream;

/// The threads that wait for the resolver.
pub static NAMES: Pool = Pool::new("names");

/// A connection to this name or address: its addresses are tried in their order. The caller has a timeout.
///
/// # Errors
/// When the name cannot be resolved, no thread can be started, or no address accepts the connection.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect(&*addresses(host, port).await??).await
}

/// The addresses of this name, with this port; there may be none.
pub fn addresses(host: &str, port: u16) -> Work<io::Result<Vec<SocketAddr>>> {
    let host = host.to_owned();
    NAMES.spawn(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}
