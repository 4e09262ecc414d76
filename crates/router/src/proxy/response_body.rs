//! An upstream's response body on its way to the client: passed on as it comes, no faster than the client takes it.
//!
//! A body that breaks off, or is silent for too long, ends with an error: the client's connection is cut, so that a
//! short body is never taken for a whole one. One line in the log says so. Trailers are left out.

use crate::proxy::RESPONSE_TIMEOUT;
use crate::proxy::patience::Patience;
use crate::proxy::pool::{Connection, Pool};
use crate::proxy::request_body::ClientBody;
use bytes::Bytes;
use hyper::body::{Body, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A response's body. At its end the connection goes back to the pool; dropped before, the connection is closed, and
/// the upstream learns that the client has left.
pub struct UpstreamBody {
    incoming: Incoming,
    connection: Option<Connection>,
    pool: Rc<Pool>,
    request: Rc<ClientBody>,
    patience: Patience,
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// What follows a response's head on a connection.
    pub fn new(incoming: Incoming, connection: Connection, pool: Rc<Pool>, request: Rc<ClientBody>) -> UpstreamBody {
        let patience = Patience::new(RESPONSE_TIMEOUT);
        UpstreamBody { incoming, connection: Some(connection), pool, request, patience }
    }

    /// The next bytes.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(context) else {
                if self.patience.poll_is_over(context).is_pending() {
                    return Poll::Pending;
                }
                if self.request.has_ended() {
                    let reason = format!("it sent nothing for {} s", RESPONSE_TIMEOUT.as_secs());
                    return Poll::Ready(Some(Err(self.break_off(&reason))));
                }
                // It answers while the request still arrives, and may want to see all of it before it goes on.
                continue;
            };
            self.patience.rest();
            match next {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(self.break_off(&crate::proxy::exchange::describe(&error)))));
                }
                None => {
                    self.give_back();
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Whether the last bytes were given out.
    pub fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// How long it is, if the upstream said so.
    pub fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    fn break_off(&mut self, reason: &str) -> io::Error {
        self.connection = None;
        if self.request.failure().is_none() {
            let upstream = &self.pool.endpoint;
            tracing::error!(%upstream, reason, "an upstream's response broke off: the client's connection is cut");
        }
        io::Error::other("the upstream's response broke off")
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.give_back(connection);
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Whoever knows the length does not ask once more for the end.
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
