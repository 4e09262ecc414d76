//! The way to the daemon: a datagram socket, or a TCP connection whose messages have their length before them (RFC 6587).
//!
//! Each call may wait for some seconds: only a thread of its own uses it.

use howdah_config::{LogDaemon, Syslog, SyslogServer};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

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
/// How long a connection, or a message, may take.
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
                    Ok(Connection::Tcp(TcpStream::connect_timeout(&resolve(host, *port)?, TCP_TIMEOUT)?))
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
                write_within(stream, &framed, TCP_TIMEOUT)
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

/// Writes all of the bytes within this time. A server that takes some of them now and then is as good as one that hangs.
fn write_within(stream: &mut TcpStream, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the server did not take a whole message within {limit:?}"),
            ));
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            // The time is over: the next look at the clock reports it.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_takes_a_little_now_and_then_does_not_hold_a_message() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut stream = TcpStream::connect(server.local_addr().expect("an address")).expect("a connection");
        let (mut slow, _) = server.accept().expect("a connection");
        let reader = std::thread::spawn(move || {
            // Until the writer gives up.
            let mut some = vec![0; 64 * 1024];
            while slow.read(&mut some).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let (began, limit) = (Instant::now(), Duration::from_millis(200));
        let error = write_within(&mut stream, &vec![0; 256 << 20], limit).expect_err("too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!((limit..50 * limit).contains(&began.elapsed()), "{:?}", began.elapsed());
        drop(stream);
        reader.join().expect("it ends");
    }
}
