//! A listener's socket of QUIC, and the handshakes on it. One thread has all connections of a listener: another thread would
//! not know to which connection a packet belongs, as clients may change their address.
//!
//! A client must prove its address (Retry) when many handshakes are under way, or the limit of connections was reached. At
//! that limit a new one is refused; browsers then use TCP. Each look for room closes idle connections of others, and takes
//! time: there is one in [`PAUSE`], however many packets come.
//!
//! With early data (0-RTT), the connection of a client that has proved its address begins before its handshake is complete.
//! Requests without that proof wait: their sender could name any address as its own.

use crate::net::tls::SessionCache;
use crate::protocols::http3::{settings, tls_session};
use quinn::crypto::rustls::NoInitialCipherSuite;
use quinn::{BloomTokenLog, Connection, ConnectionError, Endpoint, Incoming, TokioRuntime, VarInt, ZeroRttAccepted};
use rustls::ServerConfig;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

/// The socket of a listener. Dropped, it accepts no more connections, and those that it has go on.
pub struct QuicListener {
    endpoint: Endpoint,
    secret: [u8; 32],
    used_tokens: Arc<BloomTokenLog>,
    /// The sessions of clients that may send early data. These remember the number of streams that they may open.
    early_sessions: RefCell<Option<(u32, Arc<SessionCache>)>>,
    has_early_data: Rc<Cell<bool>>,
    /// Its end is that of the task that accepts.
    accepting: Option<oneshot::Sender<Infallible>>,
}

/// How many handshakes may be under way before clients must prove their address.
const UNPROVEN_HANDSHAKES: usize = 32;
/// How many handshakes begin before the tasks that are there have their turn: each costs a signature.
const ACCEPTED_AT_ONCE: u64 = 16;
/// The least time between two looks for room at the limit of connections.
const PAUSE: Duration = Duration::from_millis(20);
/// The limit of a handshake's time.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
const TOO_LONG: &str = "it took too long";
/// How long the last packets of closed connections may take.
const LAST_PACKETS: Duration = Duration::from_millis(200);

// === impl QuicListener ===

impl QuicListener {
    /// Opens the socket, without settings for connections.
    ///
    /// # Errors
    /// When the socket cannot be watched.
    pub fn open(socket: UdpSocket, secret: [u8; 32]) -> io::Result<QuicListener> {
        let endpoint = Endpoint::new(settings::of_endpoint(&secret), None, socket, Arc::new(TokioRuntime))?;
        Ok(QuicListener {
            endpoint,
            secret,
            used_tokens: Arc::default(),
            early_sessions: RefCell::default(),
            has_early_data: Rc::default(),
            accepting: None,
        })
    }

    /// Sets the settings of the connections that are accepted from now on.
    ///
    /// # Errors
    /// When TLS has no suite that QUIC can use.
    pub fn configure(
        &self,
        tls: &ServerConfig,
        max_concurrent_streams: u32,
        early_data: bool,
    ) -> Result<(), NoInitialCipherSuite> {
        let sessions = self.sessions(max_concurrent_streams, early_data);
        let tokens = Arc::clone(&self.used_tokens);
        let config = settings::of_connections(tls, &self.secret, max_concurrent_streams, sessions, tokens)?;
        self.endpoint.set_server_config(Some(config));
        self.has_early_data.set(early_data);
        Ok(())
    }

    fn sessions(&self, max_concurrent_streams: u32, early_data: bool) -> Option<Arc<SessionCache>> {
        let mut kept = self.early_sessions.borrow_mut();
        // A client that resumes a session may open as many streams as it could before (RFC 9000, 7.4.1).
        kept.take_if(|(streams, _)| !early_data || *streams != max_concurrent_streams);
        let make = || (max_concurrent_streams, Arc::new(settings::early_sessions()));
        early_data.then(|| Arc::clone(&kept.get_or_insert_with(make).1))
    }

    /// Accepts connections until the listener is dropped. `permit` returns a permit if there may be another one, and `serve` is
    /// called for each handshake, with its permit.
    pub fn accept<P, F>(
        &mut self,
        permit: impl Fn() -> Option<P> + 'static,
        serve: impl Fn(Handshake, P) -> F + 'static,
    ) -> Pin<Box<dyn Future<Output = ()>>>
    where
        F: Future<Output = ()> + 'static,
        P: 'static,
    {
        let endpoint = self.endpoint.clone();
        let (stop, mut stopped) = oneshot::channel::<Infallible>();
        self.accepting = Some(stop);
        let has_early_data = Rc::clone(&self.has_early_data);
        Box::pin(async move {
            let open = Rc::new(Cell::new(0));
            let mut full_since: Option<Instant> = None;
            for number in 1_u64.. {
                if number.is_multiple_of(ACCEPTED_AT_ONCE) {
                    yield_now().await;
                }
                let incoming = tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    incoming = endpoint.accept() => incoming,
                };
                let Some(incoming) = incoming else { break };
                let asks_for_proof = open.get() >= UNPROVEN_HANDSHAKES || full_since.is_some();
                if asks_for_proof && incoming.may_retry() && !incoming.remote_address_validated() {
                    // It fails only for a client that has been asked before.
                    let _ = incoming.retry();
                    continue;
                }
                if full_since.is_some_and(|since| since.elapsed() < PAUSE) {
                    incoming.refuse();
                    continue;
                }
                match permit() {
                    None => {
                        full_since = Some(Instant::now());
                        incoming.refuse();
                    }
                    Some(permit) => {
                        full_since = None;
                        open.set(open.get() + 1);
                        let is_early = has_early_data.get() && incoming.remote_address_validated();
                        let handshake = Handshake { incoming, is_early, counted: Counted(Rc::clone(&open)) };
                        tokio::task::spawn_local(serve(handshake, permit));
                    }
                }
            }
        })
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// When the kernel does not know it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Accepts no more connections.
    pub fn stop(&self) {
        self.endpoint.set_server_config(None);
    }

    /// Waits until the last packets of connections that are closed are sent.
    pub async fn sent_last_packets(&self) {
        // A client that does not answer is not waited for.
        let _ = timeout(LAST_PACKETS, self.endpoint.wait_idle()).await;
    }
}

/// A handshake under way.
pub struct Handshake {
    incoming: Incoming,
    /// Whether the connection begins before it is complete.
    is_early: bool,
    counted: Counted,
}

/// The rest of a handshake whose connection has begun.
pub struct Completion {
    connection: Connection,
    accepted: ZeroRttAccepted,
    until: Instant,
    _counted: Counted,
}

struct Counted(Rc<Cell<usize>>);

// === impl Handshake ===

impl Handshake {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Completes it, or begins the connection before that.
    ///
    /// # Errors
    /// A phrase, when the client leaves, breaks the protocol, or takes too long.
    pub async fn begin(self) -> Result<(Connection, Option<Completion>), String> {
        let Handshake { incoming, is_early, counted } = self;
        let until = Instant::now() + HANDSHAKE_TIME;
        let began = timeout_at(until, async {
            if !is_early {
                return Ok((incoming.await?, None));
            }
            let mut connecting = incoming.accept()?;
            connecting.handshake_data().await?;
            Ok(match connecting.into_0rtt() {
                Ok((connection, accepted)) => (connection, Some(accepted)),
                Err(connecting) => (connecting.await?, None),
            })
        });
        match began.await {
            Ok(Ok((connection, None))) => Ok((connection, None)),
            Ok(Ok((connection, Some(accepted)))) => {
                let completion = Completion { connection: connection.clone(), accepted, until, _counted: counted };
                Ok((connection, Some(completion)))
            }
            Ok(Err(error)) => Err(ConnectionError::to_string(&error)),
            Err(_) => Err(TOO_LONG.to_owned()),
        }
    }
}

// === impl Completion ===

impl Completion {
    /// Waits for its end.
    ///
    /// # Errors
    /// As above. The connection is closed then.
    pub async fn complete(self) -> Result<(), String> {
        // Its value is for clients. It is also ready when the connection is closed.
        let ended = timeout_at(self.until, self.accepted).await;
        if tls_session::has_completed(&self.connection) {
            return Ok(());
        }
        if ended.is_err() {
            self.connection.close(VarInt::from_u32(0), TOO_LONG.as_bytes());
        }
        let why = self.connection.close_reason().filter(|_| ended.is_ok());
        Err(why.map_or_else(|| TOO_LONG.to_owned(), |error| error.to_string()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quinn::crypto::rustls::QuicClientConfig;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::RootCertStore;
    use rustls::crypto::ring::default_provider;
    use std::net::Ipv4Addr;
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    /// The settings of a server and of a client, with early data.
    fn settings() -> (ServerConfig, quinn::ClientConfig) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = signing_key.serialize_der().try_into().unwrap();
        let versions = [&rustls::version::TLS13];
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let server = server.with_protocol_versions(&versions).unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let client = client.with_protocol_versions(&versions).unwrap().with_root_certificates(roots);
        let mut client = client.with_no_client_auth();
        client.alpn_protocols = vec![b"h3".to_vec()];
        client.enable_early_data = true;
        (server, quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).unwrap())))
    }

    #[tokio::test]
    async fn a_handshake_is_complete_even_if_the_connection_is_closed_soon_after_it() {
        let (server, client) = settings();
        let (sender, mut handshakes) = mpsc::unbounded_channel();
        let serving = async move {
            let mut listener = QuicListener::open(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), [7; 32]).unwrap();
            listener.configure(&server, 8, true).unwrap();
            let address = listener.local_addr().unwrap();
            let accepting = listener.accept(
                || Some(()),
                move |handshake, ()| {
                    sender.send(handshake).unwrap();
                    async {}
                },
            );
            tokio::task::spawn_local(accepting);
            let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let connect = || endpoint.connect_with(client.clone(), address, "localhost").unwrap();

            // Without a session: its handshake is awaited.
            let connecting = tokio::task::spawn_local(connect());
            let (first, completion) = handshakes.recv().await.unwrap().begin().await.unwrap();
            assert!(completion.is_none() && tls_session::has_completed(&first));
            assert_eq!(
                tls_session::cipher_suite(&first).unwrap().suite(),
                rustls::CipherSuite::TLS13_AES_256_GCM_SHA384
            );
            let client = connecting.await.unwrap().unwrap();
            // The session comes behind the handshake.
            first.open_uni().await.unwrap().finish().unwrap();
            client.accept_uni().await.unwrap();

            let (early, accepted) = connect().into_0rtt().unwrap_or_else(|_| panic!("there is a session"));
            let (second, completion) = handshakes.recv().await.unwrap().begin().await.unwrap();
            assert!(accepted.await);
            early.close(VarInt::from_u32(1), b"");
            second.closed().await;
            assert_eq!(completion.expect("it began early").complete().await, Ok(()));

            let (early, _) = connect().into_0rtt().unwrap_or_else(|_| panic!("there are two sessions"));
            let (third, completion) = handshakes.recv().await.unwrap().begin().await.unwrap();
            drop(early);
            third.close(VarInt::from_u32(1), b"");
            assert!(completion.expect("it began early").complete().await.is_err(), "the client had not answered");
            drop(listener);
        };
        LocalSet::new().run_until(serving).await;
    }
}
