//! The listening socket and its connections.

use crate::commands::dashboard::server::routes::LOG_IN;
use crate::commands::dashboard::server::service::Service;
use howdah_exporter::connections::Connections;
use howdah_supervisor::system_error::error_text;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How many connections are open. One more closes the one that has waited for a request for longest; while there are as many,
/// each ends with its second answer.
const MAX_CONNECTIONS: usize = 64;
/// How long a browser may take for a head, and keep an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Checks that other machines do not reach the address, unless the operator allows it. `option` is its option.
///
/// # Errors
/// They do.
pub fn check_address(address: SocketAddr, allow_remote: bool, option: &str) -> Result<(), String> {
    if address.ip().is_loopback() || allow_remote {
        return Ok(());
    }
    let port = address.port();
    let remedy = match option {
        "--listen" => ", or add --allow-remote",
        _ => ", or start howdah dashboard --allow-remote",
    };
    Err(format!(
        "{option} {address}: other machines reach this address, and the connection is not encrypted; use 127.0.0.1 and a tunnel \
         (ssh -L {port}:127.0.0.1:{port} HOST){remedy}"
    ))
}

/// Listens.
///
/// # Errors
/// One sentence, with what to do.
pub fn listen(address: SocketAddr) -> Result<StdTcpListener, String> {
    let listener = StdTcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {} is in use by another program; choose another with --listen, as in --listen {}",
            address.port(),
            SocketAddr::new(address.ip(), 0)
        ),
        _ => format!("cannot listen on {address}: {}; choose another address with --listen", error_text(&error)),
    })
}

/// Accepts and serves without end.
pub async fn serve(listener: TcpListener, service: Arc<Service>) {
    let connections = Connections::new(MAX_CONNECTIONS);
    loop {
        connections.room().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let service = Arc::clone(&service);
                connections.spawn(|connection| async move {
                    let connection = Arc::new(connection);
                    let answer = service_fn(|request: Request<Incoming>| {
                        let (service, connection) = (Arc::clone(&service), Arc::clone(&connection));
                        async move {
                            // Without a session, a client may take long for its body.
                            let has_place = request.uri().path() != LOG_IN;
                            let _answering = has_place.then(|| connection.answer());
                            let mut response = service.answer(request).await.into_response();
                            if connection.ends() {
                                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                            }
                            Ok::<_, Infallible>(response)
                        }
                    });
                    let served = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD_TIMEOUT)
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                    if let Err(error) = served {
                        tracing::debug!("a connection ended early: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("the dashboard cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
