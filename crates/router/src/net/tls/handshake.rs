//! The handshake of a connection.
//!
//! A client that sends HTTP without TLS gets a 400 with an explanation. Every other failure closes the connection.

use crate::net::tls::challenges;
use crate::net::tls::clients::ClientIdentity;
use crate::net::tls::on_demand::OnDemandCertificates;
use crate::net::tls::options::suite_of;
use crate::net::transport::Transport;
use crate::product;
use howdah_config::CipherSuite;
use rustls::pki_types::CertificateDer;
use rustls::server::Acceptor;
use rustls::{ProtocolVersion, ServerConfig, ServerConnection, SupportedCipherSuite};
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

/// The agreed protocol and cipher suite, under OpenSSL's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// SSL_PROTOCOL.
    pub protocol: &'static str,
    /// SSL_CIPHER.
    pub cipher: &'static str,
    /// SSL_CLIENT_*; `None` if the client showed no certificate, or was not asked for one.
    pub client: Option<Box<ClientIdentity>>,
}

/// Why there is no encrypted stream.
#[derive(Debug)]
pub enum HandshakeError {
    /// The client sent HTTP, and got its answer.
    PlainHttp,
    /// The client is a certificate authority, and has got the answer to its challenge.
    Challenge,
    /// The client left, or broke the protocol.
    Failed(io::Error),
}

const BODY: &str = "This port speaks HTTPS: write https:// in the address.\n";
/// Limit for the bytes of a plain request that are read. Unread bytes would reset the connection, and the answer would
/// be lost.
const PLAIN_REQUEST_BYTES: u64 = 1 << 20;

/// Runs the handshake. It has no timeout: the caller sets one.
///
/// # Errors
/// When the client sends HTTP, leaves, or breaks the protocol.
pub async fn handshake(
    mut transport: Transport,
    config: Arc<ServerConfig>,
    on_demand: &OnDemandCertificates,
) -> Result<TlsStream<Transport>, HandshakeError> {
    let first = transport.peek().await.map_err(HandshakeError::Failed)?;
    // A record of TLS begins with 22, one of SSL 2 with a set bit, a request with the letters of its method.
    if first.is_some_and(|byte| byte.is_ascii_alphabetic()) {
        // An error here means that the client has left: it needs no answer.
        let _ = refuse_plain_http(&mut transport).await;
        return Err(HandshakeError::PlainHttp);
    }
    if !challenges::expects_handshake() && !on_demand.is_active() {
        return TlsAcceptor::from(config).accept(transport).await.map_err(HandshakeError::Failed);
    }
    let started = LazyConfigAcceptor::new(Acceptor::default(), transport).await.map_err(HandshakeError::Failed)?;
    match challenges::of_handshake(&started.client_hello()) {
        None => {
            if let Some(name) = started.client_hello().server_name().map(str::to_owned) {
                let has_certificate = || config.cert_resolver.resolve(started.client_hello()).is_some();
                on_demand.wait_until(&name, has_certificate).await;
            }
            started.into_stream(config).await.map_err(HandshakeError::Failed)
        }
        Some(config) => {
            let mut stream = started.into_stream(config).await.map_err(HandshakeError::Failed)?;
            // The handshake is the answer. An error here means that the client has left.
            let _ = stream.shutdown().await;
            Err(HandshakeError::Challenge)
        }
    }
}

async fn refuse_plain_http(transport: &mut Transport) -> io::Result<()> {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nServer: {}\r\nDate: {date}\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{BODY}",
        product::NAME,
        BODY.len()
    );
    transport.write_all(answer.as_bytes()).await?;
    transport.shutdown().await?;
    tokio::io::copy(&mut transport.take(PLAIN_REQUEST_BYTES), &mut tokio::io::sink()).await.map(drop)
}

// === impl Negotiated ===

impl Negotiated {
    /// The protocol and cipher suite of this connection.
    pub fn of(connection: &ServerConnection) -> Negotiated {
        let protocol = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let shown = connection.peer_certificates().and_then(|chain| chain.first());
        Negotiated::with(protocol, connection.negotiated_cipher_suite(), shown)
    }

    /// That of a connection of QUIC, whose only version is TLS 1.3.
    pub fn of_quic(suite: Option<SupportedCipherSuite>, identity: Option<Box<dyn Any>>) -> Negotiated {
        let chain = identity.and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
        Negotiated::with("TLSv1.3", suite, chain.as_ref().and_then(|chain| chain.first()))
    }

    fn with(
        protocol: &'static str,
        suite: Option<SupportedCipherSuite>,
        shown: Option<&CertificateDer<'_>>,
    ) -> Negotiated {
        let known = CipherSuite::ALL.iter().copied().find(|known| Some(suite_of(*known)) == suite);
        let client = shown.and_then(|certificate| ClientIdentity::of(certificate)).map(Box::new);
        Negotiated { protocol, cipher: known.map_or("", CipherSuite::as_str), client }
    }
}

// === impl HandshakeError ===

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::PlainHttp => f.write_str("the client sent HTTP without TLS"),
            HandshakeError::Challenge => {
                f.write_str("it was the challenge of a certificate authority, and is answered")
            }
            HandshakeError::Failed(error) => error.fmt(f),
        }
    }
}
