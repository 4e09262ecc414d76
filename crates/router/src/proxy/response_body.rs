//! An upstream's response body on its way to the client: passed on as it comes, no faster than the client takes it.
//!
//! A body that breaks off, or that sends no bytes for too long, ends with an error: the client's connection is closed, so
//! that a short body is never taken for a complete one. One line in the log reports it. Trailers are dropped.

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

/// A response's body. At its end the connection returns to the pool. If it is dropped before, the connection is closed,
/// so that the upstream notices that the client has left.
pub struct UpstreamBody {
    incoming: Incoming,
    connection: Option<Connection>,
    pool: Rc<Pool>,
    request: Rc<ClientBody>,
    patience: Patience,
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// The body after a response's head on a connection.
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
                // The upstream answers while the request still arrives, and may need all of it before it continues.
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

    /// Whether the last bytes were returned.
    pub fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Its length, if the upstream has announced it.
    pub fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    fn break_off(&mut self, reason: &str) -> io::Error {
        self.connection = None;
        if self.request.failure().is_none() {
            let upstream = &self.pool.endpoint;
            tracing::error!(%upstream, reason, "an upstream's response broke off; closing the client's connection");
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
        // A reader that knows the length does not poll once more for the end.
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
