//! The bytes of a connection, as the network carries them.

use super::either_stream::{either_stream, with_either};
use howdah_config::Peer;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connection as it was accepted.
pub enum Accepted {
    /// Over TCP, not blocking, with the client's address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// Over a unix socket, not blocking, with the listener's path.
    Unix(std::os::unix::net::UnixStream, String),
}

/// A connected socket, of a client or an upstream, which carries bytes as they are.
pub enum Transport {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

// === impl Accepted ===

impl Accepted {
    /// The other end, as the configuration sees it.
    pub fn remote(&self) -> Peer {
        match self {
            Accepted::Tcp(_, remote) => Peer::Ip(*remote),
            Accepted::Unix(..) => Peer::Unix,
        }
    }
}

// === impl Transport ===

impl Transport {
    /// Registers an accepted connection with this thread's event loop.
    ///
    /// # Errors
    /// When no more descriptors can be watched.
    pub fn new(accepted: Accepted) -> io::Result<Transport> {
        Ok(match accepted {
            Accepted::Tcp(stream, _) => Transport::Tcp(TcpStream::from_std(stream)?),
            Accepted::Unix(stream, _) => Transport::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// The first byte from the client, which stays unread; `None` if the client closed the connection.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn peek(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        let peek = |socket: BorrowedFd<'_>, first: &mut [u8; 1]| Ok(recv(socket, first, RecvFlags::PEEK)?.1);
        let length = match self {
            Transport::Tcp(stream) => stream.async_io(Interest::READABLE, || peek(stream.as_fd(), &mut first)).await?,
            Transport::Unix(stream) => stream.async_io(Interest::READABLE, || peek(stream.as_fd(), &mut first)).await?,
        };
        Ok((length > 0).then_some(first[0]))
    }

    /// Makes the end of the connection a reset: the client cannot take it for the end of a response. (A unix socket has
    /// no resets.)
    pub fn reset_at_end(&self) {
        if let Transport::Tcp(stream) = self {
            let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Ready when there are bytes to read, or the connection has ended.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Transport::Tcp(stream) => stream.poll_read_ready(context).map(|_| ()),
            Transport::Unix(stream) => stream.poll_read_ready(context).map(|_| ()),
        }
    }
}

either_stream!(Transport: Tcp, Unix);
