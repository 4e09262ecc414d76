//! The way to the daemon: a datagram socket, or a TCP connection whose messages have their length before them (RFC 6587).
//!
//! Each call may wait for some seconds: only a thread of its own uses it.

use howdah_config::{LogDaemon, Syslog, SyslogServer};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// A socket that is connected with the daemon.
#[derive(Debug)]
pub enum Connection {
    /// One message is one datagram.
    Unix(UnixDatagram),
    /// One message is one datagram.
    Udp(UdpSocket),
    /// Messages in a row.
    Tcp(TcpStream),
}

/// How long a daemon on this machine may take for a message.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection, or a write to it, may take.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the kernel takes no message of this length.
pub fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

// === impl Connection ===

impl Connection {
    /// Connects with a daemon.
    pub fn open(daemon: &LogDaemon) -> io::Result<Connection> {
        match daemon {
            LogDaemon::Journal(path) => unix(path),
            LogDaemon::Syslog(Syslog { server, .. }) => match server {
                SyslogServer::Unix(path) => unix(path),
                SyslogServer::Udp(host, port) => {
                    let address = resolve(host, *port)?;
                    let any = match address {
                        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                    };
                    let socket = UdpSocket::bind(any)?;
                    socket.connect(address)?;
                    socket.set_write_timeout(Some(LOCAL_TIMEOUT))?;
                    Ok(Connection::Udp(socket))
                }
                SyslogServer::Tcp(host, port) => {
                    let stream = TcpStream::connect_timeout(&resolve(host, *port)?, TCP_TIMEOUT)?;
                    stream.set_write_timeout(Some(TCP_TIMEOUT))?;
                    Ok(Connection::Tcp(stream))
                }
            },
        }
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Connection::Unix(socket) => socket.send(message).map(drop),
            Connection::Udp(socket) => socket.send(message).map(drop),
            Connection::Tcp(stream) => {
                check_open(stream)?;
                let mut framed = format!("{} ", message.len()).into_bytes();
                framed.extend_from_slice(message);
                stream.write_all(&framed)
            }
        }
    }
}

fn unix(path: &Path) -> io::Result<Connection> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(LOCAL_TIMEOUT))?;
    Ok(Connection::Unix(socket))
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses = (host, port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{host:?} has no address")))
}

/// A write to a connection that the server has closed succeeds once, and its message is lost: the end is read before.
fn check_open(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    match peeked {
        Ok(0) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the server has closed the connection")),
        // A server that answers is no syslog server, but takes the lines.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
