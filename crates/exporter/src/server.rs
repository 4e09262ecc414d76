//! The connections of the metrics listener: HTTP/1.1, `GET /metrics` and nothing else.
//!
//! An address that may not read the numbers gets 403. A connection that sends no request within ten seconds is closed;
//! so is the one that has waited for longest, when there are more than [`MAX_CONNECTIONS`]. While there are as many, each
//! connection ends with its second answer.

use crate::connections::{Connection, Connections};
use crate::texts::Texts;
use howdah_config::{MetricsSettings, Peer};
use howdah_metrics::exposition::format;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Which clients may read the numbers.
#[derive(Clone, Debug)]
pub struct Access {
    settings: Arc<MetricsSettings>,
}

/// Prometheus opens one connection for each target and keeps it.
const MAX_CONNECTIONS: usize = 32;
/// How long a connection may wait for the head of a request, the next one included: longer than scrapes are apart.
const HEAD_TIMEOUT: Duration = Duration::from_secs(130);
/// How long a new connection may take to its first head.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may live.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// How long to wait when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the socket fails.
///
/// # Errors
/// When the event loop cannot be made.
pub fn run(listener: OwnedFd, access: Access, texts: Arc<Texts>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        accept(TcpListener::from_std(listener)?, &access, &texts).await
    })
}

async fn accept(listener: TcpListener, access: &Access, texts: &Arc<Texts>) -> io::Result<()> {
    let connections = Connections::new(MAX_CONNECTIONS);
    loop {
        connections.room().await;
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the metrics listener cannot accept a connection; it tries again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (is_allowed, texts) = (access.allows(peer), Arc::clone(texts));
        connections.spawn(|connection| async move {
            // A client that takes nothing must not keep its place.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serve(stream, is_allowed, texts, connection)).await;
        });
    }
}

async fn serve(stream: TcpStream, is_allowed: bool, texts: Arc<Texts>, connection: Connection) {
    let _ = stream.set_nodelay(true);
    let first = tokio::time::timeout(FIRST_HEAD_TIMEOUT, stream.readable()).await;
    if !matches!(first, Ok(Ok(()))) {
        return;
    }
    let connection = Arc::new(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let (texts, connection) = (Arc::clone(&texts), Arc::clone(&connection));
        async move {
            let _answering = connection.answer();
            let mut response = answer(&request, is_allowed, &texts).await;
            if !is_allowed || connection.ends() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection of the metrics listener ended early");
    }
}

async fn answer(request: &Request<Incoming>, is_allowed: bool, texts: &Texts) -> Response<Full<Bytes>> {
    if !is_allowed {
        return plain(StatusCode::FORBIDDEN, "add this address to settings/metrics/allow");
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the numbers are at /metrics");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is possible here");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = format::accepted(&accepted.collect::<Vec<_>>().join(","));
    match texts.text(format).await {
        Some(text) => with_type(StatusCode::OK, text, format::content_type(format)),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "howdah starts, shuts down, or does not answer; try again"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    with_type(status, format!("{text}\n").into(), "text/plain; charset=utf-8")
}

fn with_type(status: StatusCode, body: Bytes, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(SERVER, HeaderValue::from_static("howdah"));
    response
}

// === impl Access ===

impl Access {
    /// The access of these settings.
    pub fn of(settings: &MetricsSettings) -> Access {
        Access { settings: Arc::new(settings.clone()) }
    }

    fn allows(&self, peer: std::net::SocketAddr) -> bool {
        match &self.settings.allow {
            Some(allowed) => allowed.matches(Peer::Ip(peer)),
            None => is_loopback(peer.ip()),
        }
    }
}

/// Also of an IPv4 address in IPv6 form.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::Configuration;

    fn access(allow: &str) -> Access {
        let text = format!(r#"{{"settings": {{"metrics": {{"listen": "127.0.0.1:9900"{allow}}}}}}}"#);
        let configuration = Configuration::parse(&text).expect("a configuration");
        Access::of(&configuration.settings.metrics.expect("settings"))
    }

    #[test]
    fn only_this_machine_reads_the_numbers_unless_addresses_are_allowed() {
        let table = [
            ("", "127.0.0.1:5", true),
            ("", "127.0.0.9:5", true),
            ("", "[::1]:5", true),
            ("", "[::ffff:127.0.0.1]:5", true),
            ("", "192.0.2.1:5", false),
            (r#", "allow": ["192.0.2.0/24", "!192.0.2.9"]"#, "192.0.2.1:5", true),
            (r#", "allow": ["192.0.2.0/24", "!192.0.2.9"]"#, "192.0.2.9:5", false),
            (r#", "allow": ["192.0.2.0/24", "!192.0.2.9"]"#, "127.0.0.1:5", false),
            (r#", "allow": []"#, "127.0.0.1:5", false),
        ];
        for (allow, peer, expected) in table {
            assert_eq!(access(allow).allows(peer.parse().expect("an address")), expected, "{allow} {peer}");
        }
    }
}
