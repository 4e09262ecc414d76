//! The server's side of a tunnel: it reports its end, and fails when the server takes nothing of the bytes that wait for it.
//!
//! While they wait, nothing more is read of the client, which may have left: the tunnel would not end.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The server's connection.
pub struct TunnelServer<S, E> {
    stream: S,
    on_end: E,
    /// While the server takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

/// How long the server may take nothing.
const PATIENCE: Duration = Duration::from_secs(60);

impl<S, E: Fn()> TunnelServer<S, E> {
    /// A connection to the server. `on_end` is called when the server has ended its side.
    pub fn new(stream: S, on_end: E) -> TunnelServer<S, E> {
        TunnelServer { stream, on_end, patience: None }
    }
}

impl<S: AsyncRead + Unpin, E: Fn() + Unpin> AsyncRead for TunnelServer<S, E> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if has_room && buffer.filled().len() == before {
            (self.on_end)();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, E: Unpin> AsyncWrite for TunnelServer<S, E> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.patience = None;
            return written;
        }
        ready!(self.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, pause};

    #[tokio::test]
    async fn a_server_that_takes_nothing_ends_its_tunnel() {
        pause();
        let (ours, mut theirs) = duplex(10);
        let mut server = TunnelServer::new(ours, || {});
        let began = Instant::now();
        let reading = async {
            for _ in 0..3 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                theirs.read_exact(&mut [0; 10]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(server.write_all(&[0; 41]), reading);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() > 3 * PATIENCE);
        theirs.read_exact(&mut [0; 10]).await.unwrap();
        server.write_all(b"more").await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_the_server_is_reported() {
        let (ours, mut theirs) = duplex(10);
        let has_ended = Cell::new(false);
        let mut server = TunnelServer::new(ours, || has_ended.set(true));
        theirs.write_all(b"last").await.unwrap();
        server.read_exact(&mut [0; 4]).await.unwrap();
        assert!(!has_ended.get());
        drop(theirs);
        assert_eq!(server.read(&mut [0; 4]).await.unwrap(), 0);
        assert!(has_ended.get());
    }
}
