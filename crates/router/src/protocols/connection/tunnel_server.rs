//! The server's side of a tunnel: it fails when the server takes nothing of the bytes that wait for it.
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
pub struct TunnelServer<S> {
    stream: S,
    /// While the server takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

/// How long the server may take nothing.
const PATIENCE: Duration = Duration::from_secs(60);

impl<S> TunnelServer<S> {
    /// A connection to the server.
    pub fn new(stream: S) -> TunnelServer<S> {
        TunnelServer { stream, patience: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TunnelServer<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TunnelServer<S> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, pause};

    #[tokio::test]
    async fn a_server_that_takes_nothing_ends_its_tunnel() {
        pause();
        let (ours, mut theirs) = duplex(10);
        let mut server = TunnelServer::new(ours);
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
}
