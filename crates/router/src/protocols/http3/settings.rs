//! The settings of QUIC on a listener.
//!
//! The keys of a router are made from a secret of the supervisor: after a router's death, the next one can reset the
//! connections that it does not have (RFC 9000, 10.3), and their clients need not wait for a time-out.
//!
//! Early data (0-RTT) can be copied by others, and sent once more. Therefore a session may be resumed once: it is in the
//! memory of this router, and is taken from there by the first handshake that names it (RFC 8446, 8.1). rustls accepts no
//! early data with tickets that clients keep.

use crate::net::tls::SessionCache;
use crate::protocols::http3::send_grant::LEAST_SEND_BYTES;
use crate::protocols::http3::tls_session::QuicTls;
use quinn::crypto::rustls::NoInitialCipherSuite;
use quinn::{
    BloomTokenLog, ConnectionId, ConnectionIdGenerator, EndpointConfig, ServerConfig, TransportConfig,
    ValidationTokenConfig, VarInt,
};
use ring::{hkdf, hmac};
use rustls::server::ProducesTickets;
use std::sync::Arc;
use std::time::Duration;

/// Sessions are kept here, not by clients.
#[derive(Debug)]
struct NoTickets;

/// Makes connection IDs.
struct RandomIds;

/// HTTP/3 inside of QUIC's TLS (ALPN).
const HTTP_3: &[u8] = b"h3";
const CONNECTION_ID_BYTES: usize = 8;
/// How many bytes of one request's body may be on their way, and wait here. Over 100 ms, this is 5 MB a second.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// The same for all requests of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// The streams from a client only: its settings, two for QPACK, and some that it may use to no end.
const STREAMS_OF_ONE_DIRECTION: u32 = 8;
/// A client from which nothing comes for this time is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// A client that lives confirms a packet this often: it may wait for a response for long.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How many tokens a client gets, by each of which it can prove its address once more without a round trip.
const TOKENS_OF_CLIENT: u32 = 2;
/// How many sessions are kept for early data, and for how long. Each handshake leaves two.
const EARLY_SESSIONS: usize = 8192;
const EARLY_SESSION_TIME: Duration = Duration::from_secs(3600);
/// How many handshakes may wait for the router.
const MAX_WAITING: usize = 1024;
/// How many bytes of them.
const WAITING_BYTES: u64 = 16 * 1024 * 1024;
const WAITING_BYTES_OF_CLIENT: u64 = 64 * 1024;

/// The settings of a listener's socket.
pub fn of_endpoint(secret: &[u8; 32]) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &derived(secret, b"reset"))));
    // quinn's own generator marks them with a key of the process: packets with those of another router would be ignored.
    config.cid_generator(|| Box::new(RandomIds));
    config
}

/// The settings of connections, from those of TLS over TCP. `early`: the sessions of clients that may send early data.
///
/// # Errors
/// When TLS has no version or suite that QUIC can use.
pub fn of_connections(
    tls: &rustls::ServerConfig,
    secret: &[u8; 32],
    max_concurrent_streams: u32,
    early: Option<Arc<SessionCache>>,
    used_tokens: Arc<BloomTokenLog>,
) -> Result<ServerConfig, NoInitialCipherSuite> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![HTTP_3.to_vec()];
    tls.max_early_data_size = 0;
    if let Some(sessions) = early {
        // QUIC limits it in its own way.
        tls.max_early_data_size = u32::MAX;
        tls.session_storage = sessions;
        tls.ticketer = Arc::new(NoTickets);
    }
    let tls = QuicTls::new(tls)?;
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&derived(secret, b"tokens"));
    let mut config = ServerConfig::new(Arc::new(tls), Arc::new(token_key));
    config.transport_config(Arc::new(transport(max_concurrent_streams)));
    let mut tokens = ValidationTokenConfig::default();
    tokens.log(used_tokens).sent(TOKENS_OF_CLIENT);
    config.validation_token_config(tokens);
    config.max_incoming(MAX_WAITING);
    config.incoming_buffer_size(WAITING_BYTES_OF_CLIENT);
    config.incoming_buffer_size_total(WAITING_BYTES);
    Ok(config)
}

/// The sessions of a listener whose clients may send early data.
pub fn early_sessions() -> SessionCache {
    SessionCache::new(EARLY_SESSIONS, EARLY_SESSION_TIME)
}

fn transport(max_concurrent_streams: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(max_concurrent_streams))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_OF_ONE_DIRECTION))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(LEAST_SEND_BYTES)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(SILENCE.try_into().ok())
        .keep_alive_interval(Some(KEEP_ALIVE));
    transport
}

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; CONNECTION_ID_BYTES];
        // Without random bytes there is no TLS either: the handshake fails.
        let _ = getrandom::fill(&mut id);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A key for this purpose.
fn derived(secret: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), purpose);
    let mut key = [0; 32];
    key.copy_from_slice(tag.as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        let secret = [7; 32];
        assert_eq!(derived(&secret, b"a"), derived(&secret, b"a"));
        assert_ne!(derived(&secret, b"a"), derived(&secret, b"b"));
        assert_ne!(derived(&secret, b"a"), derived(&[8; 32], b"a"));
    }
}
