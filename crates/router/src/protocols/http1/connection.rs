//! A client's connection, from its first request to its end: hyper on a guarded socket.
//!
//! The [`Clock`] ends a connection whose time is over. hyper itself answers broken requests (400, 431), and closes. After
//! a 101 the socket goes over to `tunnel`. A connection that is between two requests gives its buffers back if its thread
//! has many.

use crate::net::linger::linger;
use crate::net::peer::Peer;
use crate::net::socket::Socket;
use crate::protocols::connection::boxed::boxed;
use crate::protocols::connection::limits::{BUFFER_BYTES, MAX_HEADERS};
use crate::protocols::connection::rejection::{log_closed, log_rejection};
use crate::protocols::http1::clock::Clock;
use crate::protocols::http1::compact::compact;
use crate::protocols::http1::guarded::Guarded;
use crate::protocols::http1::tunnel;
use crate::protocols::http1::watched::Watched;
use bytes::Bytes;
use http::{StatusCode, Version};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1::{self, Parts};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// With more connections than this on a thread, connections between two requests give their buffers back: hyper keeps
/// two of 8 KiB for each. And a request that waits keeps a copy of its head, and no buffer. (With fewer connections,
/// the cost of new buffers for each request exceeds the saved memory.)
const CONNECTIONS_WITH_BUFFERS: u64 = 256;

/// The most memory that the answer to a request takes at its beginning. Memory that only some requests need is in a box of
/// its own.
const MOST_BYTES_OF_REQUEST: usize = 4096;

/// The last run of hyper on a connection.
struct LastRun {
    result: hyper::Result<()>,
    /// Whether the client left within the head of a request.
    left_in_head: bool,
    /// Whether the client spoke another protocol, and got no answer.
    is_other_protocol: bool,
}

/// Why hyper no longer runs on a connection.
enum Ended {
    /// The connection is closed, or must be.
    Closed(hyper::Result<()>),
    /// The connection is between two requests, with nothing left to write.
    Idle,
    /// The connection's time is over.
    Overdue,
}

/// Serves a connection to its end. These bytes of it were read already. `may_be_http2`: a client whose bytes are no HTTP gets
/// no answer. `answer` makes a response of each request.
///
/// The result is the status of bytes that were not a request, for the access log: 400 if the client left within a head.
pub async fn serve<B, F>(
    clock: Rc<Clock>,
    socket: Socket,
    read_before: Bytes,
    may_be_http2: bool,
    peer: Rc<Peer>,
    answer: impl Fn(Rc<Peer>, Rc<Clock>, Request<Incoming>) -> F,
) -> Option<StatusCode>
where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>>,
{
    let mut watched = Watched::new(socket, Rc::clone(&clock));
    watched.unread(read_before);
    let mut guarded = Guarded::new(watched, Rc::clone(&clock), may_be_http2);
    let LastRun { result, left_in_head, is_other_protocol } = loop {
        if !is_readable(&clock, &guarded).await {
            break announce_end(guarded).await;
        }
        // In a box: a connection that waits for its next request has no memory for it.
        match Box::pin(run(&clock, guarded, &peer, &answer)).await {
            ControlFlow::Continue(between_requests) => guarded = between_requests,
            ControlFlow::Break(last) => break last,
        }
    };
    // A client may have left during its request: no response's end has notified the clock.
    clock.become_idle();
    if left_in_head {
        return Some(StatusCode::BAD_REQUEST);
    }
    if is_other_protocol {
        log_closed(&peer, "it sent bytes that are neither HTTP/1 nor HTTP/2");
        return Some(StatusCode::BAD_REQUEST);
    }
    let error = result.err()?;
    tracing::debug!(%error, "a connection ended early");
    if !error.is_parse() {
        return None;
    }
    // hyper has answered with these.
    let status = match error.is_parse_too_large() {
        true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    };
    log_rejection(&peer, status, &error.to_string());
    Some(status)
}

/// Runs hyper on the connection, until it waits for another request or is over.
async fn run<B, F>(
    clock: &Rc<Clock>,
    guarded: Guarded,
    peer: &Rc<Peer>,
    answer: impl Fn(Rc<Peer>, Rc<Clock>, Request<Incoming>) -> F,
) -> ControlFlow<LastRun, Guarded>
where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>>,
{
    let last_version = Cell::new(Version::HTTP_11);
    let service = service_fn(|mut request| {
        clock.request_began(request.version() == Version::HTTP_11);
        if clock.connections_of_thread() > CONNECTIONS_WITH_BUFFERS {
            compact(&mut request);
        }
        last_version.set(request.version());
        let answer = boxed(|| answer(Rc::clone(peer), Rc::clone(clock), request));
        debug_assert!(size_of_val(&*answer) <= MOST_BYTES_OF_REQUEST, "a request has {} bytes", size_of_val(&*answer));
        async move {
            let mut response = answer.await;
            clock.keep_head(response.extensions_mut().remove());
            Ok::<Response<B>, Infallible>(response)
        }
    });
    let mut connection = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .max_headers(MAX_HEADERS)
        .title_case_headers(true)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(guarded), service);
    let ended = poll_fn(|context| poll_connection(clock, Pin::new(&mut connection), context)).await;
    let Parts { io, read_buf, .. } = connection.into_parts();
    let guarded = io.into_inner();
    match ended {
        // Bytes in hyper's buffer would be lost.
        Ended::Idle if read_buf.is_empty() => ControlFlow::Continue(guarded),
        Ended::Idle => {
            debug_assert!(false, "between two requests there is nothing to read");
            ControlFlow::Break(LastRun { result: Ok(()), left_in_head: false, is_other_protocol: false })
        }
        Ended::Overdue => ControlFlow::Break(announce_end(guarded).await),
        Ended::Closed(result) => {
            ControlFlow::Break(Box::pin(close(clock, guarded, read_buf, result, last_version.get())).await)
        }
    }
}

/// Closes a connection that hyper has ended, or makes a tunnel of it.
async fn close(
    clock: &Rc<Clock>,
    mut guarded: Guarded,
    unread: Bytes,
    result: hyper::Result<()>,
    last_version: Version,
) -> LastRun {
    let (left_in_head, is_other_protocol) = (guarded.has_unfinished_head(), guarded.is_other_protocol());
    let broke_off = result.as_ref().is_err_and(hyper::Error::is_user);
    if broke_off && last_version == Version::HTTP_10 {
        // The end of the connection may be the only end that the body has.
        guarded.into_inner().reset_at_end();
    } else if result.is_ok()
        && let Some(upstream) = clock.begin_tunnel()
    {
        guarded.unread(&unread);
        tunnel::run(clock, guarded.into_inner(), upstream).await;
    } else if guarded.is_shut_too_early() {
        clock.become_idle();
        linger(&mut guarded.into_inner()).await;
    }
    LastRun { result, left_in_head, is_other_protocol }
}

/// Closes a connection that is not to be answered.
async fn announce_end(guarded: Guarded) -> LastRun {
    guarded.into_inner().announce_end().await;
    LastRun { result: Ok(()), left_in_head: false, is_other_protocol: false }
}

/// Waits until the client sends something; `false` if the connection must be closed.
async fn is_readable(clock: &Clock, guarded: &Guarded) -> bool {
    poll_fn(|context| {
        if clock.is_overdue() {
            return Poll::Ready(false);
        }
        clock.keep_waker(context);
        let readable = guarded.poll_readable(context);
        if readable.is_pending() && clock.may_end() {
            return Poll::Ready(false);
        }
        readable.map(|()| true)
    })
    .await
}

fn poll_connection<C: Connection>(
    clock: &Clock,
    mut connection: Pin<&mut C>,
    context: &mut Context<'_>,
) -> Poll<Ended> {
    if clock.is_overdue() {
        return Poll::Ready(Ended::Overdue);
    }
    let ends = clock.may_end();
    if ends && clock.is_busy() {
        // The response then announces that it is the last.
        connection.as_mut().finish();
    }
    clock.keep_waker(context);
    let mut polled = connection.as_mut().poll(context);
    if ends && polled.is_pending() && clock.is_idle() {
        // The poll has read everything that had arrived: no request has begun.
        connection.as_mut().finish();
        polled = connection.poll(context);
    }
    if let Poll::Ready(result) = polled {
        return Poll::Ready(Ended::Closed(result));
    }
    if clock.is_between_requests() && clock.connections_of_thread() > CONNECTIONS_WITH_BUFFERS {
        return Poll::Ready(Ended::Idle);
    }
    Poll::Pending
}

/// hyper's connection, whose type has no name.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Answers the requests that have come, then closes.
    fn finish(self: Pin<&mut Self>);
}

impl<S> Connection for http1::Connection<TokioIo<Guarded>, S>
where
    S: hyper::service::HttpService<Incoming>,
    S::ResBody: Body<Data = Bytes, Error = io::Error> + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}
