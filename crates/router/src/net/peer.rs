//! The names of both ends of a connection, as CGI variables have them.

use super::front::Front;
use super::tls::Negotiated;
use super::transport::Accepted;
use howdah_config::Scheme;
use std::cell::Cell;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// Both ends of a connection.
pub struct Peer {
    /// REMOTE_ADDR; `unix:` for a unix socket.
    pub remote_addr: Rc<str>,
    /// REMOTE_PORT.
    pub remote_port: String,
    /// SERVER_ADDR.
    pub server_addr: String,
    /// SERVER_PORT.
    pub server_port: String,
    /// The listener's number.
    pub listener: u64,
    /// The agreed version and cipher of TLS; `None` without TLS.
    pub tls: Option<Negotiated>,
    /// The rest of the description by a web server in front; `None` if the client itself is connected.
    pub front: Option<Front>,
    /// How often its listener had withdrawn the access of its clients when this one was accepted.
    pub withdrawals: u64,
    /// When the handshake began and ended. The first request takes it.
    pub handshake: Cell<Option<(Instant, Instant)>>,
}

// === impl Peer ===

impl Peer {
    /// Both ends of a connection that this listener accepted.
    ///
    /// # Errors
    /// When the client has left already.
    pub fn of(accepted: &Accepted, listener: u64) -> io::Result<Peer> {
        Ok(match accepted {
            Accepted::Tcp(stream, remote) => Peer::between(*remote, stream.local_addr()?, listener),
            Accepted::Unix(_, path) => Peer::of_unix_socket(path, listener),
        })
    }

    /// Both ends of a connection of QUIC, on this listener.
    pub fn of_quic(remote: SocketAddr, local: SocketAddr, tls: Negotiated, listener: u64) -> Peer {
        Peer { tls: Some(tls), ..Peer::between(remote, local, listener) }
    }

    /// Both ends of a connection to this socket.
    pub fn of_unix_socket(path: impl Display, listener: u64) -> Peer {
        Peer {
            remote_addr: "unix:".into(),
            remote_port: String::new(),
            server_addr: format!("unix:{path}"),
            server_port: String::new(),
            listener,
            tls: None,
            front: None,
            withdrawals: 0,
            handshake: Cell::new(None),
        }
    }

    fn between(remote: SocketAddr, local: SocketAddr, listener: u64) -> Peer {
        Peer {
            remote_addr: remote.ip().to_canonical().to_string().into(),
            remote_port: remote.port().to_string(),
            server_addr: local.ip().to_canonical().to_string(),
            server_port: local.port().to_string(),
            listener,
            tls: None,
            front: None,
            withdrawals: 0,
            handshake: Cell::new(None),
        }
    }

    /// The same, after the client has moved to another address.
    pub fn moved_to(&self, remote: SocketAddr) -> Peer {
        Peer {
            remote_addr: remote.ip().to_canonical().to_string().into(),
            remote_port: remote.port().to_string(),
            tls: self.tls.clone(),
            handshake: Cell::new(self.handshake.take()),
            ..self.described_by(None)
        }
    }

    /// The same ends, as a web server in front describes the client.
    pub fn described_by(&self, front: Option<Front>) -> Peer {
        Peer {
            remote_addr: Rc::clone(&self.remote_addr),
            remote_port: self.remote_port.clone(),
            server_addr: self.server_addr.clone(),
            server_port: self.server_port.clone(),
            listener: self.listener,
            tls: None,
            front,
            withdrawals: self.withdrawals,
            handshake: Cell::new(None),
        }
    }

    /// The scheme of the client's URL.
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() || self.front.as_ref().is_some_and(|front| front.is_https) {
            Scheme::Https
        } else {
            Scheme::Http
        }
    }
}
