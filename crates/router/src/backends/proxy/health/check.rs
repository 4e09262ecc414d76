//! A check of one server: a request on a connection of its own.
//!
//! A check fails if there is no response in time, or one with another status. The failure is a phrase for the log.

use crate::backends::connecting::{KnownAddresses, PathOwner};
use crate::backends::proxy::connection::connect::connect;
use crate::backends::proxy::connection::socket::UpstreamSocket;
use crate::backends::proxy::exchange::describe;
use crate::backends::proxy::health::server_health::ServerHealth;
use crate::backends::proxy::tls::handshake::ServerTls;
use crate::product;
use crate::report::{contained, inject};
use bytes::Bytes;
use howdah_config::{Endpoint, HealthCheck};
use http::header::{CONNECTION, HOST, USER_AGENT};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout_at};

/// A server, and how it is checked.
pub struct CheckedServer {
    /// The server.
    pub endpoint: Endpoint,
    /// TLS to it.
    pub tls: Option<ServerTls>,
    /// The request and its expected answer.
    pub check: HealthCheck,
    /// Its state, which the checks change.
    pub health: Arc<ServerHealth>,
}

/// The first check comes within this time, so that not all servers are checked at once.
const FIRST_WITHIN: Duration = Duration::from_secs(1);
/// The part of the interval by which it is longer or shorter, by chance.
const JITTER: f64 = 0.1;
/// How much of a response's body is read, so that the server can send it.
const BODY_BYTES: usize = 64 * 1024;

// === impl CheckedServer ===

impl CheckedServer {
    /// Checks the server without end.
    pub async fn run(&self) {
        let addresses = KnownAddresses::default();
        sleep(FIRST_WITHIN.min(self.check.interval).mul_f64(chance())).await;
        loop {
            // A panic is a bug of howdah. It changes nothing about the server.
            if let Ok(result) = contained(Box::pin(self.check_once(&addresses))).await {
                self.health.checked(result, &self.check);
            }
            sleep(self.check.interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance())).await;
        }
    }

    async fn check_once(&self, addresses: &KnownAddresses) -> Result<(), String> {
        inject("check", &self.check.path);
        let (owner, limit) = (PathOwner::Operator, self.check.timeout);
        let deadline = Instant::now() + limit;
        let socket = connect(&self.endpoint, owner, self.tls.as_ref(), addresses, limit).await;
        let socket = socket.map_err(|error| error.to_string())?;
        let response = timeout_at(deadline, self.request(socket)).await;
        response.unwrap_or_else(|_| Err(format!("no response within {} s", limit.as_secs_f64())))
    }

    async fn request(&self, socket: UpstreamSocket) -> Result<(), String> {
        let invalid = |error: hyper::Error| format!("no valid response: {}", describe(&error));
        let (mut sender, connection) = http1::Builder::new()
            .title_case_headers(true)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(socket))
            .await
            .map_err(invalid)?;
        // The request on the connection receives its errors.
        spawn_local(async move { drop(connection.await) });
        let host = self.check.host.clone().unwrap_or_else(|| match self.endpoint.host() {
            Some(_) => self.endpoint.to_string(),
            None => "localhost".to_owned(),
        });
        let request = http::Request::get(&self.check.path)
            .header(HOST, host)
            .header(USER_AGENT, format!("{} (health check)", product::NAME))
            .header(CONNECTION, "close")
            .body(Empty::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(invalid)?;
        let status = response.status();
        // The status is known: a body that breaks off, or is longer, does not matter.
        let _ = Limited::new(response.into_body(), BODY_BYTES).collect().await;
        match self.check.accepts(status.as_u16()) {
            true => Ok(()),
            false => Err(format!("it answered {}", status.as_u16())),
        }
    }
}

impl PartialEq for CheckedServer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.health, &other.health) && self.check == other.check && self.tls == other.tls
    }
}

/// A number from 0 to 1 by chance.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}
