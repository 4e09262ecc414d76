//! A socket that collects what is written to it, and sends it together: many small writes share a system call.

use super::socket::Socket;
use super::transport::Transport;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket, and bytes for it. With TLS they are encrypted at once, into rustls' own buffer of 64 KiB.
pub struct CollectingSocket {
    socket: Socket,
    /// Bytes that were written without TLS. Has no memory while it is empty.
    plain: Vec<u8>,
    /// How many bytes of `plain` the socket has taken.
    taken: usize,
}

/// The result of [`CollectingSocket::poll_send`].
pub enum Sending {
    /// The kernel has all bytes.
    Done,
    /// The kernel has no room. The task is woken when it has.
    Full {
        /// Whether it has taken some bytes before.
        has_moved: bool,
    },
}

/// Writes what a transport takes now. Otherwise the task is woken when it takes more.
struct PolledTransport<'t, 'c> {
    transport: &'t mut Transport,
    context: &'t mut Context<'c>,
}

/// How many bytes are collected without TLS.
const MOST_PLAIN: usize = 64 * 1024;
/// The first memory for them.
const FIRST_PLAIN: usize = 4 * 1024;

// === impl CollectingSocket ===

impl CollectingSocket {
    /// A socket without bytes to be sent.
    pub fn new(socket: Socket) -> CollectingSocket {
        CollectingSocket { socket, plain: Vec::new(), taken: 0 }
    }

    /// Collects bytes of these pieces, from the first on. Returns their number: 0 if there is no room for any.
    ///
    /// # Errors
    /// When TLS has failed.
    pub fn collect(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tls(stream) => stream.get_mut().1.writer().write_vectored(pieces),
            Socket::Plain(_) => Ok(self.collect_plain(pieces)),
        }
    }

    fn collect_plain(&mut self, pieces: &[IoSlice<'_>]) -> usize {
        if self.plain.capacity() == 0 {
            self.plain.reserve(FIRST_PLAIN);
        }
        let before = self.plain.len();
        for piece in pieces {
            let length = piece.len().min(MOST_PLAIN - self.plain.len());
            self.plain.extend_from_slice(&piece[..length]);
        }
        self.plain.len() - before
    }

    /// Sends what was collected.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll_send(&mut self, context: &mut Context<'_>) -> io::Result<Sending> {
        let mut has_moved = false;
        loop {
            let written = match &mut self.socket {
                Socket::Tls(stream) => {
                    let (transport, session) = stream.get_mut();
                    if !session.wants_write() {
                        return Ok(Sending::Done);
                    }
                    session.write_tls(&mut PolledTransport { transport, context })
                }
                Socket::Plain(transport) => {
                    if self.taken == self.plain.len() {
                        (self.plain, self.taken) = (Vec::new(), 0);
                        return Ok(Sending::Done);
                    }
                    let written = PolledTransport { transport, context }.write(&self.plain[self.taken..]);
                    self.taken += written.as_ref().unwrap_or(&0);
                    written
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => has_moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sending::Full { has_moved }),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads from the socket.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }

    /// Ends the sending half, after all bytes that were collected.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_send(context)? {
            Sending::Done => Pin::new(&mut self.socket).poll_shutdown(context),
            Sending::Full { .. } => Poll::Pending,
        }
    }
}

// === impl PolledTransport ===

impl Write for PolledTransport<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.transport).poll_write(self.context, bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.transport).poll_write_vectored(self.context, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn or_would_block(written: Poll<io::Result<usize>>) -> io::Result<usize> {
    match written {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn what_was_collected_is_sent_together_and_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = CollectingSocket::new(Socket::Plain(Transport::Unix(ours)));
        let bytes: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
        let (mut collected, mut was_full, mut received) = (0, false, vec![0; bytes.len()]);
        let writing = async {
            while collected < bytes.len() {
                let (first, second) = bytes[collected..].split_at((bytes.len() - collected) / 3);
                let length = socket.collect(&[IoSlice::new(first), IoSlice::new(second)]).unwrap();
                assert!(length > 0 && socket.plain.len() <= MOST_PLAIN);
                assert!(length < MOST_PLAIN || socket.collect(&[IoSlice::new(b"more")]).unwrap() == 0);
                collected += length;
                poll_fn(|context| match socket.poll_send(context).unwrap() {
                    Sending::Done => Poll::Ready(()),
                    Sending::Full { .. } => {
                        was_full = true;
                        Poll::Pending
                    }
                })
                .await;
                assert_eq!(socket.plain.capacity(), 0);
            }
        };
        let (_, read) = tokio::join!(writing, theirs.read_exact(&mut received));
        assert!(read.is_ok() && was_full && received == bytes);
    }

    #[tokio::test]
    async fn a_connection_that_the_client_has_closed_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut socket = CollectingSocket::new(Socket::Plain(Transport::Unix(ours)));
        drop(theirs);
        assert_eq!(socket.collect(&[IoSlice::new(b"late")]).unwrap(), 4);
        assert!(poll_fn(|context| Poll::Ready(socket.poll_send(context))).await.is_err());
    }
}
