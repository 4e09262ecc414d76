//! Serves the connections of a thread, each to its end: finds its protocol, and passes its requests to the dispatcher.

use crate::dispatch::{self, Dispatcher};
use crate::net::accept::Entrance;
use crate::net::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::net::load::Load;
use crate::net::peer::Peer;
use crate::net::socket::Socket;
use crate::net::tls::{Negotiated, OnDemandCertificates};
use crate::net::transport::{Accepted, Transport};
use crate::process::client::{self, Client};
use crate::process::connections::{Connections, Registered};
use crate::protocols::connection::clock::ConnectionClock;
use crate::protocols::connection::rejection::log_closed;
use crate::protocols::fastcgi_listener;
use crate::protocols::fastcgi_listener::clock::FastCgiClock;
use crate::protocols::fastcgi_listener::request_body::RequestBody as FastCgiBody;
use crate::protocols::http1;
use crate::protocols::http1::clock::Clock;
use crate::protocols::http2;
use crate::protocols::http2::clock::MultiplexedClock;
use crate::protocols::http2::request_body::RequestBody;
use crate::protocols::http3;
use crate::protocols::http3::clock::QuicClock;
use crate::protocols::http3::listener::{Handshake, QuicListener};
use crate::protocols::http3::request_body::RequestBody as Http3Body;
use crate::protocols::http3::tls_session;
use crate::report::{count, inject};
use crate::request::clock::RequestClock;
use crate::request::incoming::IncomingBody;
use crate::request::record::numbers::RequestNumbers;
use bytes::Bytes;
use howdah_metrics::labels::{Cause, NameId};
use howdah_metrics::layout::Scalar;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::spawn_local;

/// The parts of a thread that its connections use.
pub struct Serving {
    /// Answers the requests.
    pub dispatcher: Rc<Dispatcher>,
    /// The open connections.
    pub connections: Connections,
    /// The sockets of QUIC that this thread has, by listener.
    pub quic_listeners: RefCell<HashMap<u64, QuicListener>>,
    /// How much the thread has to do.
    pub load: Arc<Load>,
    /// Whether the thread ends when its requests are answered.
    pub draining: Cell<bool>,
    /// The limit of connections, which all threads share.
    limit: Arc<ConnectionLimit>,
    /// The certificates that handshakes may wait for.
    on_demand: Arc<OnDemandCertificates>,
}

/// Counts an event when it is dropped.
struct CountsOnDrop(Scalar);

// === impl Serving ===

impl Serving {
    /// Without connections.
    pub fn new(load: Arc<Load>, limit: Arc<ConnectionLimit>, on_demand: Arc<OnDemandCertificates>) -> Serving {
        Serving {
            dispatcher: Rc::default(),
            connections: Connections::default(),
            quic_listeners: RefCell::default(),
            load,
            draining: Cell::new(false),
            limit,
            on_demand,
        }
    }

    /// A permit for another connection. At the limit, some connections that wait for another request are closed.
    pub fn permit(&self) -> Option<ConnectionPermit> {
        let permit = self.limit.acquire();
        if permit.is_none() {
            self.connections.make_room();
        }
        permit
    }

    /// Serves a connection to its end. It counts as open from this call on.
    pub fn serve(self: Rc<Self>, accepted: Accepted, entrance: Entrance) -> impl Future<Output = ()> {
        let open = self.load.connection_began();
        async move {
            let _open = open;
            count(Scalar::Accepted);
            let _closed = CountsOnDrop(Scalar::Closed);
            self.serve_connection(accepted, entrance).await;
        }
    }

    /// Whether connections of this listener end as soon as their requests are answered.
    fn is_draining(&self, listener: u64) -> bool {
        self.draining.get() || !self.dispatcher.views.has_listener(listener)
    }

    async fn serve_connection(self: &Rc<Self>, accepted: Accepted, entrance: Entrance) {
        let Entrance { listener, tls, withdrawals, permit: _permit } = entrance;
        let Ok(peer) = Peer::of(&accepted, listener) else { return };
        let mut peer = Peer { withdrawals, ..peer };
        let view = self.dispatcher.views.of_listener(listener);
        if let Some(fastcgi) = view.listener(listener).and_then(|listener| listener.fastcgi.as_ref()) {
            let is_allowed = fastcgi.allows(accepted.remote());
            drop(view);
            if !is_allowed {
                return log_closed(&peer, "it is not one of \"allowed_clients\" of the FastCGI listener");
            }
            let Ok(transport) = Transport::new(accepted) else { return };
            return Box::pin(self.serve_fastcgi(transport, peer)).await;
        }
        drop(view);
        let Ok(transport) = Transport::new(accepted) else { return };
        let clock = Rc::new(Clock::new(Arc::clone(&self.load), listener, self.is_draining(listener)));
        let registered = self.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
        let remote_addr = Rc::clone(&peer.remote_addr);
        let dispatcher = &self.dispatcher;
        let view = dispatcher.views.of_listener(listener);
        let may_know_http2 = tls.is_none() && view.listener(listener).is_some_and(|listener| listener.http2);
        drop(view);
        let tls = tls.map(|config| (config, &*self.on_demand));
        let status = match client::greet(&clock, transport, &mut peer, tls, may_know_http2).await {
            Client::Ended(status) => status,
            Client::Http1(socket, read_before) => {
                let answer = |peer, clock: Rc<Clock>, request: Request<Incoming>| {
                    inject("connection", request.uri().path());
                    let request = request.map(|body| IncomingBody::of_http1(body, &clock));
                    dispatch::answer(Rc::clone(dispatcher), peer, RequestClock::Http1(clock), request)
                };
                http1::connection::serve(clock, socket, read_before, may_know_http2, Rc::new(peer), answer).await
            }
            Client::Http2(socket, read_before) => {
                let is_draining = clock.is_draining();
                drop(clock);
                let serving = Box::pin(self.serve_http2(&registered, is_draining, socket, read_before, peer));
                serving.await
            }
        };
        if let Some(status) = status {
            let bad_request = RequestNumbers::default();
            bad_request.refuse(Cause::BadRequest);
            bad_request.count(NameId::NONE, "", status, Instant::now());
            let view = dispatcher.views.active();
            let log = dispatcher.log_sink(view.configuration());
            if let Some(entry) = log.and_then(|log| log.entry_without_request(&remote_addr, status)) {
                entry.write();
            }
        }
    }

    /// Returns the status for the access log, if the connection ended with bytes that are no request.
    async fn serve_http2(
        &self,
        registered: &Registered<'_>,
        is_draining: bool,
        socket: Socket,
        read_before: Bytes,
        peer: Peer,
    ) -> Option<StatusCode> {
        let listener = peer.listener;
        let (clock, max_concurrent_streams) = {
            let view = self.dispatcher.views.of_listener(listener);
            let http = &view.configuration().settings.http;
            // A change may have withdrawn its access during the handshake.
            let is_draining = is_draining || self.is_draining(listener);
            let limit = Arc::clone(&self.limit);
            let clock = MultiplexedClock::new(Arc::clone(&self.load), limit, listener, is_draining, http);
            (Rc::new(clock), http.http2.max_concurrent_streams)
        };
        registered.replace(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
        let dispatcher = Rc::clone(&self.dispatcher);
        let answer = move |peer, clock, request: Request<RequestBody>| {
            inject("connection", request.uri().path());
            let request = request.map(IncomingBody::of_http2);
            dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::Http2(clock), request)
        };
        http2::connection::serve(clock, socket, read_before, Rc::new(peer), max_concurrent_streams, answer).await
    }

    /// Serves a connection of QUIC, from its handshake to its end.
    pub async fn serve_quic(
        self: Rc<Self>,
        handshake: Handshake,
        local: SocketAddr,
        listener: u64,
        _permit: ConnectionPermit,
    ) {
        let _open = self.load.connection_began();
        count(Scalar::Accepted);
        let _closed = CountsOnDrop(Scalar::Closed);
        let (client, began) = (handshake.remote(), Instant::now());
        // A change during the handshake may withdraw the access.
        let withdrawals = self.dispatcher.withdrawals.of(listener);
        let (connection, completion) = match handshake.begin().await {
            Ok(begun) => begun,
            Err(reason) => {
                count(Scalar::TlsFailed);
                return tracing::debug!(%client, reason, "a QUIC handshake failed");
            }
        };
        let local = SocketAddr::new(connection.local_ip().unwrap_or(local.ip()), local.port());
        let negotiated = Negotiated::of_quic(tls_session::cipher_suite(&connection), connection.peer_identity());
        let peer = Peer { withdrawals, ..Peer::of_quic(client, local, negotiated, listener) };
        peer.handshake.set(Some((began, Instant::now())));
        let clock = {
            let view = self.dispatcher.views.of_listener(listener);
            let is_draining = self.is_draining(listener) || !self.quic_listeners.borrow().contains_key(&listener);
            let http = &view.configuration().settings.http;
            // Without a completion to wait for, the handshake is complete.
            let is_confirmed = completion.is_none();
            let limit = Arc::clone(&self.limit);
            Rc::new(QuicClock::new(Arc::clone(&self.load), limit, listener, is_draining, is_confirmed, http))
        };
        match completion {
            None => count(Scalar::Tls13),
            Some(completion) => {
                let clock = Rc::clone(&clock);
                spawn_local(async move {
                    match completion.complete().await {
                        Ok(()) => {
                            count(Scalar::Tls13);
                            clock.confirm();
                        }
                        Err(reason) => {
                            count(Scalar::TlsFailed);
                            tracing::debug!(%client, reason, "a QUIC handshake failed");
                        }
                    }
                });
            }
        }
        let _registered = self.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
        let dispatcher = Rc::clone(&self.dispatcher);
        let answer = move |peer, clock, request: Request<Http3Body>| {
            inject("connection", request.uri().path());
            let request = request.map(IncomingBody::of_http3);
            dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::Http3(clock), request)
        };
        http3::connection::serve(clock, connection, client, peer, answer).await;
    }

    async fn serve_fastcgi(&self, transport: Transport, peer: Peer) {
        let listener = peer.listener;
        let clock = Rc::new(FastCgiClock::new(Arc::clone(&self.load), listener, self.is_draining(listener)));
        let _registered = self.connections.register(Rc::clone(&clock) as Rc<dyn ConnectionClock>);
        let dispatcher = Rc::clone(&self.dispatcher);
        let answer = move |peer, clock, request: Request<FastCgiBody>| {
            inject("connection", request.uri().path());
            let request = request.map(IncomingBody::of_fastcgi);
            dispatch::answer(Rc::clone(&dispatcher), peer, RequestClock::FastCgi(clock), request)
        };
        fastcgi_listener::connection::serve(clock, transport, peer, self.limit.max(), answer).await;
    }
}

impl Drop for CountsOnDrop {
    fn drop(&mut self) {
        count(self.0);
    }
}
