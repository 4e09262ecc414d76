//! A listener's socket of QUIC, and the handshakes on it. One thread has all connections of a listener: another thread would
//! not know to which connection a packet belongs, as clients may change their address.
//!
//! A client must prove its address (Retry) when many handshakes are under way. At the limit of connections a new one is
//! refused; browsers then use TCP.

use crate::http3::settings;
use quinn::crypto::rustls::NoInitialCipherSuite;
use quinn::{Connection, Endpoint, Incoming, TokioRuntime};
use rustls::ServerConfig;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The socket of a listener. Dropped, it accepts no more connections, and those that it has go on.
pub struct QuicListener {
    endpoint: Endpoint,
    secret: [u8; 32],
    /// Its end is that of the task that accepts.
    accepting: Option<oneshot::Sender<Infallible>>,
}

/// How many handshakes may be under way before clients must prove their address.
const UNPROVEN_HANDSHAKES: usize = 32;
/// The limit of a handshake's time.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
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
        Ok(QuicListener { endpoint, secret, accepting: None })
    }

    /// Sets the settings of the connections that are accepted from now on.
    ///
    /// # Errors
    /// When TLS has no suite that QUIC can use.
    pub fn configure(&self, tls: &ServerConfig, max_concurrent_streams: u32) -> Result<(), NoInitialCipherSuite> {
        let config = settings::of_connections(tls, &self.secret, max_concurrent_streams)?;
        self.endpoint.set_server_config(Some(config));
        Ok(())
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
        Box::pin(async move {
            let open = Rc::new(Cell::new(0));
            loop {
                let incoming = tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    incoming = endpoint.accept() => incoming,
                };
                let Some(incoming) = incoming else { break };
                if open.get() >= UNPROVEN_HANDSHAKES && incoming.may_retry() && !incoming.remote_address_validated() {
                    // It fails only for a client that has been asked before.
                    let _ = incoming.retry();
                    continue;
                }
                match permit() {
                    None => incoming.refuse(),
                    Some(permit) => {
                        open.set(open.get() + 1);
                        let handshake = Handshake { incoming, counted: Counted(Rc::clone(&open)) };
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
    counted: Counted,
}

struct Counted(Rc<Cell<usize>>);

// === impl Handshake ===

impl Handshake {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Completes it.
    ///
    /// # Errors
    /// A phrase, when the client leaves, breaks the protocol, or takes too long.
    pub async fn complete(self) -> Result<Connection, String> {
        let Handshake { incoming, counted } = self;
        let shaken = timeout(HANDSHAKE_TIME, incoming).await;
        drop(counted);
        match shaken {
            Ok(connection) => connection.map_err(|error| error.to_string()),
            Err(_) => Err("it took too long".to_owned()),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
