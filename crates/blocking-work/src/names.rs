//! Look-ups of host names. They have a pool of their own, because the system's resolver waits for servers.

use crate::{Pool, Work};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The threads that wait for the resolver.
pub static NAMES: Pool = Pool::new("names");

/// The addresses of this name, with this port; there may be none. The caller has a timeout.
///
/// # Errors
/// When the name cannot be resolved, or no thread can be started.
pub async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    addresses(host, port).await?
}

/// The same, for a caller that may wait for the same look-up more than once.
pub fn addresses(host: &str, port: u16) -> Work<io::Result<Vec<SocketAddr>>> {
    let host = host.to_owned();
    NAMES.spawn(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
}
