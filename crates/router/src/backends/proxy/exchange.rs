//! Sends one request on one connection, and receives the head of its response, with a timeout.

use crate::backends::proxy::connection::connect::ConnectError;
use crate::backends::proxy::connection::pool::UpstreamConnection;
use crate::backends::proxy::head::{self, Outgoing};
use crate::response::failure::Failure;
use howdah_config::Endpoint;
use http::Response;
use hyper::body::Incoming;
use hyper::ext::on_informational;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::pin::pin;
use std::time::Duration;
use tokio::select;
use tokio::time::{Instant, timeout_at};

/// Why there is no response.
#[derive(Debug)]
pub enum ExchangeError {
    /// There is no connection.
    Unconnected(ConnectError),
    /// The client's body failed.
    Client(Failure),
    /// The connection had been closed before the request was sent.
    Unsent,
    /// The connection was closed before the first byte of a response.
    Unanswered(String),
    /// The received bytes are not a valid response.
    Broken(String),
    /// The response did not arrive in time.
    Late(Duration),
}

/// Sends a request to the endpoint of the connection, and returns the response with its complete head. The request's body
/// may still be under way. interim responses are passed on meanwhile.
///
/// # Errors
/// When there is no response. The connection is not usable then.
pub async fn exchange(
    connection: &mut UpstreamConnection,
    outgoing: &Outgoing<'_>,
    endpoint: &Endpoint,
) -> Result<Response<Incoming>, ExchangeError> {
    let Outgoing { body, inform, .. } = outgoing;
    let limit = outgoing.settings.response_timeout;
    let mut request = outgoing.attempt(endpoint);
    let send_interim = connection.send_interim.clone();
    on_informational(&mut request, move |response| {
        let _ = send_interim.try_send((response.status(), response.headers().clone()));
    });
    connection.progress.restart();
    let mut answer = pin!(connection.sender.try_send_request(request));
    let mut deadline = Instant::now() + limit;
    let failed = loop {
        let answered = select! {
            biased;
            Some((status, headers)) = connection.interim.recv() => {
                inform(status, &head::interim(headers));
                continue;
            }
            answered = timeout_at(deadline, &mut answer) => answered,
        };
        match answered {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(failed)) => break failed,
            Err(_) => {
                // The time counts from the last write to the upstream, and not while the client is slow.
                let now = Instant::now();
                deadline = if body.is_waiting() { now } else { connection.progress.last_write() } + limit;
                if deadline <= now {
                    return Err(ExchangeError::Late(limit));
                }
            }
        }
    };
    if let Some(failure) = body.failure() {
        return Err(ExchangeError::Client(failure));
    }
    let was_sent = failed.message().is_none();
    let reason = describe(failed.error());
    Err(match (was_sent, connection.progress.has_read()) {
        (false, _) => ExchangeError::Unsent,
        (true, false) => ExchangeError::Unanswered(reason),
        (true, true) => ExchangeError::Broken(reason),
    })
}

/// hyper's error with its causes.
pub fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}

// === impl ExchangeError ===

impl ExchangeError {
    /// The answer for the client.
    pub fn failure(&self) -> Failure {
        match self {
            ExchangeError::Client(failure) => *failure,
            ExchangeError::Late(_)
            | ExchangeError::Unconnected(ConnectError::Timeout(_) | ConnectError::TlsTimeout(_)) => {
                Failure::GatewayTimeout
            }
            ExchangeError::Unconnected(ConnectError::File(reason)) => (*reason).into(),
            ExchangeError::Unconnected(_)
            | ExchangeError::Unsent
            | ExchangeError::Unanswered(_)
            | ExchangeError::Broken(_) => Failure::BadGateway,
        }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeError::Unconnected(error) => write!(f, "{error}"),
            ExchangeError::Client(failure) => write!(f, "the client's body failed: {}", failure.status()),
            ExchangeError::Unsent => write!(f, "it closed the connection before the request"),
            ExchangeError::Unanswered(error) => write!(f, "it closed the connection before its response ({error})"),
            ExchangeError::Broken(error) => write!(f, "its response is not valid: {error}"),
            ExchangeError::Late(limit) => write!(f, "no response for {} s", limit.as_secs_f64()),
        }
    }
}
