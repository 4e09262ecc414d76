//! A connection to a FastCGI server. It may be used on the thread of another request: the event loop of that thread watches
//! it from then on.

use crate::net::transport::Transport;
use bytes::BytesMut;
use rustix::net::RecvFlags;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// A connection that waits for its next request, or has one. Dropping it closes it.
pub struct Connection {
    thread: ThreadId,
    transport: Transport,
    /// Whether it has answered a request before.
    is_reused: bool,
}

/// A peer that lost its power is noticed after a minute, and after some probes in this interval.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
const TCP_PROBES: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

// === impl Connection ===

impl Connection {
    /// A connection that has just been made, on this thread.
    pub fn new(transport: Transport) -> Connection {
        if let Transport::Tcp(stream) = &transport {
            let keepalive = socket2::TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_PROBES);
            let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive);
        }
        Connection { thread: thread::current().id(), transport, is_reused: false }
    }

    /// The same connection, for another request.
    pub fn reused(self) -> Connection {
        Connection { is_reused: true, ..self }
    }

    /// Whether it has answered a request before.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Has the event loop of this thread watch it; `None` if the server has closed it, or has sent bytes without a request.
    pub fn on_this_thread(self) -> Option<Connection> {
        let here = thread::current().id();
        let Connection { thread, transport, is_reused } = self;
        if !is_silent(&transport) {
            return None;
        }
        let transport = if thread == here { transport } else { moved(transport).ok()? };
        Some(Connection { thread: here, transport, is_reused })
    }

    /// Waits until there are bytes to read, or the connection has ended, and reads. Returns the number of bytes; 0 at the end.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            match &self.transport {
                Transport::Tcp(stream) => {
                    acknowledge_at_once(stream);
                    stream.readable().await?;
                }
                Transport::Unix(stream) => stream.readable().await?,
            }
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Reads what has come; an error of the kind `WouldBlock` if that is nothing.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        READ_BUFFER.with_borrow_mut(|bytes| {
            let length = match &self.transport {
                Transport::Tcp(stream) => stream.try_read(bytes)?,
                Transport::Unix(stream) => stream.try_read(bytes)?,
            };
            buffer.extend_from_slice(&bytes[..length]);
            Ok(length)
        })
    }

    /// Waits until there is room for bytes, and writes. Returns their number.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match &self.transport {
                Transport::Tcp(stream) => stream.writable().await?,
                Transport::Unix(stream) => stream.writable().await?,
            }
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Writes if there is room.
    ///
    /// # Errors
    /// When the connection is broken, or there is no room.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.transport {
            Transport::Tcp(stream) => stream.try_write(bytes),
            Transport::Unix(stream) => stream.try_write(bytes),
        }
    }
}

/// Has the kernel acknowledge the next segments without its delay of 40 ms (RFC 1122, 4.2.3.2). PHP-FPM writes a response
/// in parts, without TCP_NODELAY: it sends the last one when the one before is acknowledged. The kernel forgets the
/// option when a request is written.
fn acknowledge_at_once(stream: &TcpStream) {
    // Without the option the response is late, and complete.
    let _ = rustix::net::sockopt::set_tcp_quickack(stream, true);
}

/// Whether the connection is open, and has no bytes to read.
fn is_silent(transport: &Transport) -> bool {
    let peek = |socket: std::os::fd::BorrowedFd<'_>| {
        rustix::net::recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)
    };
    let peeked = match transport {
        Transport::Tcp(stream) => peek(stream.as_fd()),
        Transport::Unix(stream) => peek(stream.as_fd()),
    };
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}

fn moved(transport: Transport) -> io::Result<Transport> {
    Ok(match transport {
        Transport::Tcp(stream) => Transport::Tcp(TcpStream::from_std(stream.into_std()?)?),
        Transport::Unix(stream) => Transport::Unix(UnixStream::from_std(stream.into_std()?)?),
    })
}
