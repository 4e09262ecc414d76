//! A client's connection, from the handshake on: it finds out which version of HTTP the client speaks.
//!
//! With TLS, the handshake agrees on the version (ALPN). Without it, a listener with `"http2": true` looks for the preface
//! of HTTP/2 in the first bytes; what does not begin like it is HTTP/1.

use crate::net::peer::Peer;
use crate::net::socket::Socket;
use crate::net::tls::{self, HTTP_2, HandshakeError, Negotiated, OnDemandCertificates};
use crate::net::transport::Transport;
use crate::protocols::connection::rejection::log_rejection;
use crate::protocols::http1::clock::Clock;
use crate::protocols::http2::connection::PREFACE;
use crate::report::count;
use bytes::{Bytes, BytesMut};
use howdah_metrics::layout::Scalar;
use http::StatusCode;
use rustls::{HandshakeKind, ServerConfig};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A connection that speaks a version of HTTP.
pub enum Client {
    /// HTTP/1.1 or HTTP/1.0. These bytes of it were read already.
    Http1(Socket, Bytes),
    /// HTTP/2. These bytes of it were read already.
    Http2(Socket, Bytes),
    /// It has ended, with this status of the answer, if there was one.
    Ended(Option<StatusCode>),
}

/// Finds the version of HTTP that a client speaks.
pub async fn greet(
    clock: &Clock,
    transport: Transport,
    peer: &mut Peer,
    tls: Option<(Arc<ServerConfig>, &OnDemandCertificates)>,
    may_know_http2: bool,
) -> Client {
    match tls {
        // In a box: a connection keeps the memory of its largest part for as long as it lives.
        Some((config, on_demand)) => {
            let began = Instant::now();
            match Box::pin(shake_hands(clock, transport, config, on_demand, peer)).await {
                Ok(stream) => {
                    peer.handshake.set(Some((began, Instant::now())));
                    let connection = stream.get_ref().1;
                    let is_http2 = connection.alpn_protocol() == Some(HTTP_2);
                    let negotiated = Negotiated::of(connection);
                    count(if negotiated.protocol == "TLSv1.2" { Scalar::Tls12 } else { Scalar::Tls13 });
                    if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
                        count(Scalar::TlsResumed);
                    }
                    peer.tls = Some(negotiated);
                    let socket = Socket::Tls(Box::new(stream));
                    if is_http2 { Client::Http2(socket, Bytes::new()) } else { Client::Http1(socket, Bytes::new()) }
                }
                Err(status) => Client::Ended(status),
            }
        }
        None if may_know_http2 => look_for_preface(clock, Socket::Plain(transport)).await,
        None => Client::Http1(Socket::Plain(transport), Bytes::new()),
    }
}

/// Reads until the bytes cannot be the preface of HTTP/2, or are it.
async fn look_for_preface(clock: &Clock, mut socket: Socket) -> Client {
    let mut bytes = BytesMut::new();
    let is_open = poll_fn(|context| {
        while bytes.len() < PREFACE.len() {
            if clock.is_overdue() {
                return Poll::Ready(false);
            }
            clock.keep_waker(context);
            let mut buffer = [0; PREFACE.len()];
            let mut buffer = ReadBuf::new(&mut buffer[bytes.len()..]);
            let polled = Pin::new(&mut socket).poll_read(context, &mut buffer);
            if polled.is_pending() && clock.may_end() {
                return Poll::Ready(false);
            }
            let is_end = ready!(polled).is_err() || buffer.filled().is_empty();
            clock.read(buffer.filled().len());
            bytes.extend_from_slice(buffer.filled());
            if is_end || !PREFACE.starts_with(&bytes) {
                break;
            }
        }
        Poll::Ready(true)
    });
    match is_open.await {
        false => Client::Ended(None),
        true if bytes == PREFACE => Client::Http2(socket, bytes.freeze()),
        // The end of the connection will be read again.
        true => Client::Http1(socket, bytes.freeze()),
    }
}

/// Encrypts the connection. After a failure, the status of the answer, if there was one.
async fn shake_hands(
    clock: &Clock,
    transport: Transport,
    config: Arc<ServerConfig>,
    on_demand: &OnDemandCertificates,
    peer: &Peer,
) -> Result<TlsStream<Transport>, Option<StatusCode>> {
    let (reason, status) = match clock.handshake(tls::handshake(transport, config, on_demand)).await {
        Some(Ok(stream)) => return Ok(stream),
        Some(Err(error)) => {
            let status = matches!(error, HandshakeError::PlainHttp).then_some(StatusCode::BAD_REQUEST);
            (error.to_string(), status)
        }
        None => ("it took too long".to_owned(), None),
    };
    count(Scalar::TlsFailed);
    let client = &peer.remote_addr;
    tracing::debug!(%client, port = peer.remote_port, reason, "a TLS handshake failed");
    if let Some(status) = status {
        log_rejection(peer, status, "plain HTTP on a TLS port");
    }
    Err(status)
}
