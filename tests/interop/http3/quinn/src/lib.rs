//! The way to a server of HTTP/3 whose certificate is known.

use bytes::Bytes;
use h3::client::{Connection, SendRequest};
use h3_quinn::OpenStreams;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Any failure.
pub type Failure = Box<dyn Error>;
/// The way to send requests on a connection.
pub type Requests = SendRequest<OpenStreams, Bytes>;
/// The part of a connection that is not a request.
pub type Driver = Connection<h3_quinn::Connection, Bytes>;

/// A socket for connections to a server with this certificate (a file in PEM).
///
/// # Errors
/// When the file cannot be read, or there is no socket.
pub fn endpoint(certificate: &str) -> Result<Endpoint, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut tls = builder.with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(4 << 20)).receive_window(VarInt::from_u32(8 << 20));
    config.transport_config(Arc::new(transport));
    let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

/// HTTP/3 on a connection.
///
/// # Errors
/// When the server ends the connection.
pub async fn begin(connection: quinn::Connection) -> Result<(Driver, Requests), Failure> {
    Ok(h3::client::builder().send_grease(true).build(h3_quinn::Connection::new(connection)).await?)
}
