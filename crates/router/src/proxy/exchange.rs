//! One request and the head of its response, on one connection, in bounded time.

use crate::proxy::RESPONSE_TIMEOUT;
use crate::proxy::connect::ConnectError;
use crate::proxy::pool::Connection;
use crate::proxy::request_body::{ClientBody, RequestBody};
use crate::response::failure::Failure;
use http::{Request, Response};
use hyper::body::Incoming;
use std::error::Error;
use std::fmt::Write as _;
use std::pin::pin;
use tokio::time::{Instant, timeout_at};

/// Why there is no response.
#[derive(Debug)]
pub enum Lost {
    /// There is no connection.
    Unconnected(ConnectError),
    /// It is the client's fault.
    Client(Failure),
    /// The connection had been closed before anything was sent.
    Unsent,
    /// The connection was closed before anything came.
    Unanswered(String),
    /// What came is no response.
    Broken(String),
    /// Nothing came in time.
    Late,
}

/// Sends a request; its response is complete up to the body. The request's body may go on.
///
/// # Errors
/// When there is no response. The connection is of no use then.
pub async fn exchange(
    connection: &mut Connection,
    request: Request<RequestBody>,
    body: &ClientBody,
) -> Result<Response<Incoming>, Lost> {
    connection.progress.restart();
    let mut answer = pin!(connection.sender.try_send_request(request));
    let mut deadline = Instant::now() + RESPONSE_TIMEOUT;
    let failed = loop {
        match timeout_at(deadline, &mut answer).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(failed)) => break failed,
            Err(_) => {
                // The time counts from when the upstream last took something, and not while the client is slow.
                let now = Instant::now();
                deadline = if body.is_waiting() { now } else { connection.progress.last_write() } + RESPONSE_TIMEOUT;
                if deadline <= now {
                    return Err(Lost::Late);
                }
            }
        }
    };
    if let Some(failure) = body.failure() {
        return Err(Lost::Client(failure));
    }
    let was_sent = failed.message().is_none();
    let reason = describe(failed.error());
    Err(match (was_sent, connection.progress.has_read()) {
        (false, _) => Lost::Unsent,
        (true, false) => Lost::Unanswered(reason),
        (true, true) => Lost::Broken(reason),
    })
}

/// What hyper says, with all that it knows.
pub fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(text, ": {error}");
        source = error.source();
    }
    text
}
