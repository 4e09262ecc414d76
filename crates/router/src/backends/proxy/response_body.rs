//! An upstream's response body on its way to the client: passed on as it comes, no faster than the client takes it.
//!
//! A body that breaks off, or that sends no bytes for too long, ends with an error: the client's connection is closed, so
//! that a short body is never taken for a complete one. One line in the log reports it. Trailers are passed on after the end
//! of the body. Bytes that came together with the head are read before the client gets the head: if they are broken, the answer is 502.

use crate::backends::proxy::assigned::AssignedRequest;
use crate::backends::proxy::connection::pool::{ConnectionPool, UpstreamConnection};
use crate::backends::proxy::request_body::ClientBody;
use crate::backends::proxy::timeout::WaitTimeout;
use crate::response::body::Source;
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::upgrade::Upgraded;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::yield_now;

/// The body of an upstream's response.
pub enum UpstreamBody {
    /// Bytes, as they come.
    Stream(UpstreamStream),
    /// The connection, after a 101, until a tunnel takes it.
    Tunnel(Option<Upgraded>),
}

/// A response's body. At its end the connection returns to the pool. If it is dropped before, the connection is closed,
/// so that the upstream notices that the client has left.
pub struct UpstreamStream {
    incoming: Incoming,
    connection: Option<UpstreamConnection>,
    pool: Rc<ConnectionPool>,
    request: Rc<ClientBody>,
    timeout: WaitTimeout,
    /// The bytes that came together with the head.
    first: Option<Bytes>,
    /// The trailers, until the end of the body.
    trailers: Option<Box<HeaderMap>>,
    /// The process of an HTTP application, or the server of an upstream, is in use until the end of the response.
    assigned: Option<AssignedRequest>,
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// Ends the request of a server together with the response. A tunnel does not keep a process from its end.
    pub fn hold(&mut self, request: Option<AssignedRequest>) {
        if let UpstreamBody::Stream(stream) = self {
            stream.assigned = request;
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            UpstreamBody::Stream(stream) => stream.poll(context),
            UpstreamBody::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Stream(stream) => {
                stream.first.is_none() && stream.trailers.is_none() && stream.incoming.is_end_stream()
            }
            UpstreamBody::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Stream(stream) => stream.incoming.size_hint(),
            UpstreamBody::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}

impl Source for UpstreamBody {
    fn take_tunnel(&mut self) -> Option<Upgraded> {
        match self {
            UpstreamBody::Stream(_) => None,
            UpstreamBody::Tunnel(upstream) => upstream.take(),
        }
    }
}

// === impl UpstreamStream ===

impl UpstreamStream {
    /// The body after a response's head on a connection.
    pub fn new(
        incoming: Incoming,
        connection: UpstreamConnection,
        pool: Rc<ConnectionPool>,
        request: Rc<ClientBody>,
        limit: Duration,
    ) -> UpstreamStream {
        let timeout = WaitTimeout::new(limit);
        UpstreamStream {
            incoming,
            connection: Some(connection),
            pool,
            request,
            timeout,
            first: None,
            trailers: None,
            assigned: None,
        }
    }

    /// Reads the part of a body without a length that came together with the head, without waiting for more: the client
    /// has no response yet, so that a broken body can still be answered 502.
    ///
    /// # Errors
    /// The body is not valid: the text has its fault.
    pub async fn read_ahead(&mut self) -> Result<(), String> {
        let mut polled = self.poll_once().await;
        if polled.is_pending() {
            // This poll has requested the bytes from the task of the connection, which has its turn now.
            yield_now().await;
            polled = self.poll_once().await;
        }
        match polled {
            Poll::Pending => {}
            Poll::Ready(Some(Err(error))) => return Err(crate::backends::proxy::exchange::describe(&error)),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.first = Some(data),
                Err(frame) => self.trailers = frame.into_trailers().ok().map(Box::new),
            },
            Poll::Ready(None) => self.give_back(),
        }
        Ok(())
    }

    async fn poll_once(&mut self) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        poll_fn(|context| Poll::Ready(Pin::new(&mut self.incoming).poll_frame(context))).await
    }

    /// The next bytes, or the trailers.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(context) else {
                if self.timeout.poll_expired(context).is_pending() {
                    return Poll::Pending;
                }
                if self.request.has_ended() {
                    let reason = format!("it sent nothing for {} s", self.timeout.limit().as_secs_f64());
                    return Poll::Ready(Some(Err(self.break_off(&reason))));
                }
                // The upstream answers while the request still arrives, and may need all of it before it continues.
                continue;
            };
            self.timeout.stop();
            match next {
                Some(Ok(frame)) if frame.is_data() => return Poll::Ready(Some(Ok(frame))),
                // The connection is free when the end of the body has come, too.
                Some(Ok(frame)) => self.trailers = frame.into_trailers().ok().map(Box::new),
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(self.break_off(&crate::backends::proxy::exchange::describe(&error)))));
                }
                None => {
                    self.give_back();
                    return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))));
                }
            }
        }
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

impl Drop for UpstreamStream {
    fn drop(&mut self) {
        // A reader that knows the length does not poll once more for the end.
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
