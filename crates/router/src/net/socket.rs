//! A client's socket, as hyper reads and writes it: it tells the connection's [`Clock`] what happens.
//!
//! With TLS the clock is told of the bytes inside, except that what TLS has not got rid of counts as not written.

use crate::http1::connection::Clock;
use crate::net::tls::Negotiated;
use bytes::{Buf, Bytes};
use howdah_config::Scheme;
use rustix::net::{RecvFlags, recv};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

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
    /// What TLS agreed on; `None` is no TLS.
    pub tls: Option<Negotiated>,
}

/// The socket of a client, which carries bytes as they are.
pub enum Transport {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

/// What HTTP is spoken over.
pub enum Socket {
    /// A socket.
    Plain(Transport),
    /// A socket with TLS, after the handshake.
    Tls(Box<TlsStream<Transport>>),
}

/// A socket that tells its connection's clock.
pub struct Watched {
    socket: Socket,
    clock: Rc<Clock>,
    /// What was read before, and comes first.
    read_before: Bytes,
}

// === impl Peer ===

impl Peer {
    /// How the client's URL begins.
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }
}

// === impl Transport ===

impl Transport {
    /// Takes an accepted connection to this thread's event loop.
    ///
    /// # Errors
    /// When the client is gone already, or no more descriptors can be watched.
    pub fn new(accepted: Accepted, listener: u64) -> io::Result<(Transport, Peer)> {
        match accepted {
            Accepted::Tcp(stream, remote) => {
                let local = stream.local_addr()?;
                let peer = Peer {
                    remote_addr: remote.ip().to_canonical().to_string().into(),
                    remote_port: remote.port().to_string(),
                    server_addr: local.ip().to_canonical().to_string(),
                    server_port: local.port().to_string(),
                    listener,
                    tls: None,
                };
                Ok((Transport::Tcp(TcpStream::from_std(stream)?), peer))
            }
            Accepted::Unix(stream, path) => {
                let peer = Peer {
                    remote_addr: "unix:".into(),
                    remote_port: String::new(),
                    server_addr: format!("unix:{path}"),
                    server_port: String::new(),
                    listener,
                    tls: None,
                };
                Ok((Transport::Unix(UnixStream::from_std(stream)?), peer))
            }
        }
    }

    /// The first byte that the client sent, which stays to be read; `None` if it hung up.
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

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Transport::Tcp(stream) => stream.poll_read_ready(context).map(|_| ()),
            Transport::Unix(stream) => stream.poll_read_ready(context).map(|_| ()),
        }
    }
}

macro_rules! with_either {
    ($self:ident: $kind:ident, $one:ident, $other:ident; $method:ident($($argument:ident),*)) => {
        match $self.get_mut() {
            $kind::$one(stream) => Pin::new(stream).$method($($argument),*),
            $kind::$other(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

/// Reads and writes whichever of two streams it is.
macro_rules! either_stream {
    ($kind:ident: $one:ident, $other:ident) => {
        impl AsyncRead for $kind {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_read(context, buffer))
            }
        }

        impl AsyncWrite for $kind {
            fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                with_either!(self: $kind, $one, $other; poll_write(context, bytes))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffers: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                with_either!(self: $kind, $one, $other; poll_write_vectored(context, buffers))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_flush(context))
            }

            fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                with_either!(self: $kind, $one, $other; poll_shutdown(context))
            }
        }
    };
}

either_stream!(Transport: Tcp, Unix);
either_stream!(Socket: Plain, Tls);

// === impl Socket ===

impl Socket {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Socket::Plain(transport) => transport.poll_readable(context),
            Socket::Tls(stream) => match stream.get_ref() {
                // It has read more than HTTP has asked for, or the end.
                (_, connection) if !connection.wants_read() => Poll::Ready(()),
                (transport, _) => transport.poll_readable(context),
            },
        }
    }
}

// === impl Watched ===

impl Watched {
    /// A socket whose clock it tells.
    pub fn new(socket: Socket, clock: Rc<Clock>) -> Watched {
        Watched { socket, clock, read_before: Bytes::new() }
    }

    /// Reads these bytes first, the next time.
    pub fn unread(&mut self, bytes: Bytes) {
        self.read_before = bytes;
    }

    /// Says that nothing more comes, as far as the client takes it at once. With TLS it can then tell this end from one
    /// that somebody else made.
    pub async fn say_goodbye(&mut self) {
        poll_fn(|context| {
            let _ = Pin::new(&mut self.socket).poll_shutdown(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Ready when there is something to read, or the connection's end.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.read_before.is_empty() { self.socket.poll_readable(context) } else { Poll::Ready(()) }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read_before.is_empty() {
            let length = self.read_before.len().min(buffer.remaining());
            buffer.put_slice(&self.read_before[..length]);
            self.read_before.advance(length);
            self.clock.read(length);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(context, buffer);
        match &result {
            Poll::Ready(_) => self.clock.read(buffer.filled().len() - before),
            Poll::Pending => self.clock.read_blocked(),
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.clock.wrote(result.is_ready());
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, buffers);
        self.clock.wrote(result.is_ready());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(context);
        self.clock.wrote(result.is_ready());
        if result.is_ready() {
            self.clock.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
