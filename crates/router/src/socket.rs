//! A client's socket, as hyper reads and writes it: it tells the connection's [`Clock`] what happens.

use crate::connection::Clock;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection as it was accepted.
pub enum Accepted {
    /// Over TCP, not blocking, with the client's address.
    Tcp(std::net::TcpStream, SocketAddr),
    /// Over a unix socket, not blocking, with the listener's path.
    Unix(std::os::unix::net::UnixStream, String),
}

/// Both ends' names, as CGI variables say them.
pub struct Peer {
    /// REMOTE_ADDR; `unix:` for a unix socket.
    pub remote_addr: Rc<str>,
    /// REMOTE_PORT.
    pub remote_port: String,
    /// SERVER_ADDR.
    pub server_addr: String,
    /// SERVER_PORT.
    pub server_port: String,
    /// The listener's number.
    pub listener: u64,
}

/// The socket of a client.
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

/// A socket that tells its connection's clock.
pub struct Watched {
    socket: Socket,
    clock: Rc<Clock>,
}

// === impl Socket ===

impl Socket {
    /// Takes an accepted connection to this thread's event loop.
    ///
    /// # Errors
    /// When the client is gone already, or no more descriptors can be watched.
    pub fn new(accepted: Accepted, listener: u64) -> io::Result<(Socket, Peer)> {
        match accepted {
            Accepted::Tcp(stream, remote) => {
                let local = stream.local_addr()?;
                let peer = Peer {
                    remote_addr: remote.ip().to_canonical().to_string().into(),
                    remote_port: remote.port().to_string(),
                    server_addr: local.ip().to_canonical().to_string(),
                    server_port: local.port().to_string(),
                    listener,
                };
                Ok((Socket::Tcp(TcpStream::from_std(stream)?), peer))
            }
            Accepted::Unix(stream, path) => {
                let peer = Peer {
                    remote_addr: "unix:".into(),
                    remote_port: String::new(),
                    server_addr: format!("unix:{path}"),
                    server_port: String::new(),
                    listener,
                };
                Ok((Socket::Unix(UnixStream::from_std(stream)?), peer))
            }
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(context).map(|_| ()),
            Socket::Unix(stream) => stream.poll_read_ready(context).map(|_| ()),
        }
    }
}

// === impl Watched ===

impl Watched {
    /// A socket whose clock it tells.
    pub fn new(socket: Socket, clock: Rc<Clock>) -> Watched {
        Watched { socket, clock }
    }

    /// Ready when there is something to read, or the connection's end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(context)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        match &result {
            Poll::Ready(_) => self.clock.read(buffer.filled().len() - before),
            Poll::Pending => self.clock.read_blocked(),
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        };
        self.clock.wrote(result.is_ready());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Socket::Unix(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
        };
        self.clock.wrote(result.is_ready());
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        };
        self.clock.flushed();
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
