//! The TLS of QUIC's connections: rustls behind the interface that quinn has for it.
//!
//! quinn's own implementation does not return the cipher suite that was agreed on, which applications get as SSL_CIPHER.
//! This one returns it as the data of the handshake. The keys of the first packets, and the tags of Retry, are quinn's.

use quinn::Side;
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, TransportError, TransportErrorCode};
use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;
use rustls::quic::{Connection, DirectionalKeys, KeyChange, Secrets, ServerConnection, Version};
use std::any::Any;
use std::io::Cursor;
use std::sync::Arc;

/// The settings of TLS for the connections of a listener.
pub struct QuicTls {
    config: Arc<rustls::ServerConfig>,
    first_packets: Arc<QuicServerConfig>,
}

/// The TLS of a connection. The data of its handshake are a [`Progress`].
struct TlsSession {
    tls: Arc<QuicTls>,
    version: u32,
    connection: Connection,
    /// The keys that follow those in use.
    next: Option<Secrets>,
    has_agreed: bool,
}

/// How far a handshake is.
struct Progress {
    suite: SupportedCipherSuite,
    is_complete: bool,
}

/// The version that rustls calls a draft: it derives other keys. quinn accepts these numbers as well.
const DRAFTS: std::ops::RangeInclusive<u32> = 0xff00_001d..=0xff00_0020;

/// The cipher suite that a connection has agreed on.
pub fn cipher_suite(connection: &quinn::Connection) -> Option<SupportedCipherSuite> {
    progress(connection).map(|progress| progress.suite)
}

/// Whether the handshake of a connection was completed, also if the connection was closed later.
pub fn has_completed(connection: &quinn::Connection) -> bool {
    progress(connection).is_some_and(|progress| progress.is_complete)
}

fn progress(connection: &quinn::Connection) -> Option<Box<Progress>> {
    connection.handshake_data()?.downcast().ok()
}

// === impl QuicTls ===

impl QuicTls {
    /// From the settings of rustls.
    ///
    /// # Errors
    /// When TLS has no suite that QUIC can use.
    pub fn new(config: rustls::ServerConfig) -> Result<QuicTls, NoInitialCipherSuite> {
        let config = Arc::new(config);
        // The first packets have this suite, whatever the listener allows for the rest.
        let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let first_packets = match suite {
            Some(suite) => QuicServerConfig::with_initial(Arc::clone(&config), suite)?,
            None => QuicServerConfig::try_from(Arc::clone(&config))?,
        };
        Ok(QuicTls { config, first_packets: Arc::new(first_packets) })
    }
}

impl ServerConfig for QuicTls {
    fn initial_keys(&self, version: u32, destination: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.first_packets.initial_keys(version, destination)
    }

    fn retry_tag(&self, version: u32, original_destination: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.first_packets.retry_tag(version, original_destination, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        let mut bytes = Vec::new();
        parameters.write(&mut bytes);
        let derivation = if DRAFTS.contains(&version) { Version::V1Draft } else { Version::V1 };
        // rustls refuses settings without TLS 1.3, without a suite of it, and with a limit of early data, for all connections
        // alike: the router makes none.
        let connection = ServerConnection::new(Arc::clone(&self.config), derivation, bytes)
            .expect("the settings of a listener with HTTP/3 are for QUIC");
        Box::new(TlsSession {
            tls: self,
            version,
            connection: Connection::Server(connection),
            next: None,
            has_agreed: false,
        })
    }
}

// === impl TlsSession ===

impl Session for TlsSession {
    fn initial_keys(&self, destination: &ConnectionId, _: Side) -> Keys {
        let keys = self.tls.first_packets.initial_keys(self.version, destination);
        keys.unwrap_or_else(|_| unreachable!("a version that is not known has no session"))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let suite = self.connection.negotiated_cipher_suite()?;
        Some(Box::new(Progress { suite, is_complete: !self.connection.is_handshaking() }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let chain = self.connection.peer_certificates()?.iter();
        let chain: Vec<CertificateDer<'static>> = chain.map(|shown| shown.clone().into_owned()).collect();
        Some(Box::new(chain))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let DirectionalKeys { header, packet, .. } = self.connection.zero_rtt_keys()?;
        Some((Box::new(header), Box::new(packet)))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        // For clients.
        None
    }

    fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.connection.read_hs(bytes).map_err(|error| {
            let code = self
                .connection
                .alert()
                .map_or(TransportErrorCode::PROTOCOL_VIOLATION, |alert| TransportErrorCode::crypto(alert.into()));
            TransportError { code, frame: None, reason: error.to_string() }
        })?;
        let had_agreed = std::mem::replace(&mut self.has_agreed, self.connection.negotiated_cipher_suite().is_some());
        Ok(self.has_agreed && !had_agreed)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = self.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(bytes))?))
    }

    fn write_handshake(&mut self, bytes: &mut Vec<u8>) -> Option<Keys> {
        let keys = match self.connection.write_hs(bytes)? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                keys
            }
        };
        Some(Keys {
            header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
            packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        // Only servers send it.
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self.connection.export_keying_material(output, label, Some(context));
        exported.map(drop).map_err(|_| ExportKeyingMaterialError)
    }
}
