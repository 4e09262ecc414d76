//! The stream that HTTP is spoken over: a connection with or without TLS.

use super::either_stream::{either_stream, with_either};
use super::transport::Transport;
use std::task::{Context, Poll};
use tokio_rustls::server::TlsStream;

/// A client's socket.
pub enum Socket {
    /// Without TLS.
    Plain(Transport),
    /// With TLS, after the handshake.
    Tls(Box<TlsStream<Transport>>),
}

// === impl Socket ===

impl Socket {
    /// Ready when there are bytes to read, or the connection has ended.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Socket::Plain(transport) => transport.poll_readable(context),
            Socket::Tls(stream) => match stream.get_ref() {
                // rustls has read more than HTTP has asked for, or the end.
                (_, connection) if !connection.wants_read() => Poll::Ready(()),
                (transport, _) => transport.poll_readable(context),
            },
        }
    }

    /// Makes the end of the connection a reset.
    pub fn reset_at_end(&self) {
        match self {
            Socket::Plain(transport) => transport.reset_at_end(),
            Socket::Tls(stream) => stream.get_ref().0.reset_at_end(),
        }
    }
}

either_stream!(Socket: Plain, Tls);
