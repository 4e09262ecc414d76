//! A web server's connection, from its first request to its end: one request at a time.
//!
//! While a request is answered, the connection is read: more of its body comes, or its end. A web server that aborts the
//! request, or closes the connection, takes the request along: it leaves the queue, or its script is stopped, as with a
//! client of HTTP that leaves.

use crate::net::peer::Peer;
use crate::net::transport::Transport;
use crate::protocols::connection::framing::{content_length, has_body, make_final};
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::rejection::log_closed;
use crate::protocols::fastcgi_listener::clock::{FastCgiClock, IDLE};
use crate::protocols::fastcgi_listener::link::{Link, LinkError, OUTPUT_BYTES};
use crate::protocols::fastcgi_listener::request_body::{BodyQueue, RequestBody};
use crate::protocols::fastcgi_listener::request_head::{self, RequestHead};
use crate::protocols::fastcgi_listener::response_head;
use bytes::{Bytes, BytesMut};
use howdah_fastcgi::answer::Outcome;
use howdah_fastcgi::record::Violation;
use howdah_fastcgi::reply;
use howdah_fastcgi::request_reader::RequestPiece;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use hyper::body::Body;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A request whose variables have come, and the beginning of its body.
struct Begun {
    number: u16,
    keeps_connection: bool,
    head: RequestHead,
    refusal: Option<HeadRefusal>,
    body: Rc<BodyQueue>,
}

/// Why a request, or the connection, goes no further.
enum Ended {
    /// The web server has left, or its connection drains.
    Left,
    /// The web server gives the request up.
    Aborted,
    /// The web server broke the protocol.
    Violation(Violation),
    /// The connection's time is over.
    Overdue(&'static str),
    /// The response breaks off.
    Broken,
}

/// Serves a connection to its end. `answer` makes a response of each request.
pub async fn serve<B, F>(
    clock: Rc<FastCgiClock>,
    transport: Transport,
    peer: Peer,
    max_connections: u64,
    answer: impl Fn(Rc<Peer>, Rc<FastCgiClock>, Request<RequestBody>) -> F,
) where
    B: Body<Data = Bytes, Error = io::Error>,
    F: Future<Output = Response<B>>,
{
    let mut link = Link::new(transport, Rc::clone(&clock), max_connections);
    let ended = loop {
        let begun = match next_request(&clock, &mut link, &peer).await {
            Ok(begun) => begun,
            Err(ended) => break ended,
        };
        let keeps_connection = begun.keeps_connection;
        // In a box: a connection that waits for its next request has no memory for it.
        let result = Box::pin(answer_request(&clock, &mut link, begun, &answer)).await;
        clock.connection_waits();
        match result {
            Ok(()) | Err(Ended::Aborted) => {}
            Err(ended) => break ended,
        }
        let still_sends = !link.has_whole_request();
        link.request_ended();
        if still_sends && result.is_ok() || !keeps_connection || clock.is_draining() {
            return link.close(still_sends).await;
        }
    };
    match ended {
        Ended::Left | Ended::Aborted => link.close(false).await,
        Ended::Broken => link.reset(),
        Ended::Overdue(reason) if reason == IDLE => {}
        Ended::Overdue(reason) => log_closed(&peer, reason),
        Ended::Violation(violation) => {
            log_closed(&peer, &format!("FastCGI: {violation}"));
            link.close(false).await;
        }
    }
}

/// Waits for the variables of a request, and the first of its body. A request without a body is then whole.
async fn next_request(clock: &FastCgiClock, link: &mut Link, connection: &Peer) -> Result<Begun, Ended> {
    let mut began: Option<(u16, bool)> = None;
    let mut begun: Option<Begun> = None;
    poll_fn(|context| {
        loop {
            if let Some(reason) = clock.poll_overdue(context) {
                return Poll::Ready(Err(Ended::Overdue(reason)));
            }
            if link.poll_flush(context).map(|result| result.is_err()) == Poll::Ready(true) {
                return Poll::Ready(Err(Ended::Left));
            }
            let polled = link.poll_piece(context);
            if polled.is_pending() && clock.may_end() {
                return Poll::Ready(Err(Ended::Left));
            }
            match (ready!(polled)?, began, &mut begun) {
                (RequestPiece::Begin { request, keeps_connection }, ..) => {
                    clock.head_began();
                    began = Some((request, keeps_connection));
                }
                (RequestPiece::Variables(list), Some((number, keeps_connection)), _) => {
                    let (head, refusal) = match request_head::read(list, connection) {
                        Ok(head) => (head, None),
                        Err(refusal) => (request_head::refused(connection), Some(refusal)),
                    };
                    let body = BodyQueue::new(head.length);
                    begun = Some(Begun { number, keeps_connection, head, refusal, body });
                }
                (RequestPiece::TooManyVariables, Some((number, _)), _) => {
                    let (head, refusal) = (request_head::refused(connection), Some(HeadRefusal::HeadTooLarge));
                    let body = BodyQueue::new(None);
                    body.end();
                    return Poll::Ready(Ok(Begun { number, keeps_connection: false, head, refusal, body }));
                }
                (RequestPiece::Abort, Some((number, keeps_connection)), _) => {
                    reply::request_end(link.output(), number, Outcome::Complete);
                    link.request_ended();
                    (began, begun) = (None, None);
                    clock.connection_waits();
                    if !keeps_connection {
                        return Poll::Ready(Err(Ended::Left));
                    }
                }
                (RequestPiece::Body(part), _, Some(request)) => {
                    request.body.push(part);
                    return Poll::Ready(begun.take().ok_or(Ended::Left));
                }
                (RequestPiece::BodyEnd, _, Some(request)) => {
                    request.body.end();
                    return Poll::Ready(begun.take().ok_or(Ended::Left));
                }
                // The reader does not make others here.
                _ => {}
            }
        }
    })
    .await
}

/// Answers a request.
async fn answer_request<B, F>(
    clock: &Rc<FastCgiClock>,
    link: &mut Link,
    begun: Begun,
    answer: impl Fn(Rc<Peer>, Rc<FastCgiClock>, Request<RequestBody>) -> F,
) -> Result<(), Ended>
where
    B: Body<Data = Bytes, Error = io::Error>,
    F: Future<Output = Response<B>>,
{
    let Begun { number, head: RequestHead { mut parts, peer, length }, refusal, body: queue, .. } = begun;
    if queue.received() == 0 && length != Some(0) {
        // Some web servers announce a body that they do not send.
        parts.headers.remove(CONTENT_LENGTH);
    }
    clock.request_began(refusal);
    let method = parts.method.clone();
    let request = Request::from_parts(parts, queue.body());
    let response = {
        let mut answering = pin!(answer(Rc::new(peer), Rc::clone(clock), request));
        poll_fn(|context| {
            if let Poll::Ready(ended) = poll_trouble(clock, link, &queue, context) {
                return Poll::Ready(Err(ended));
            }
            answering.as_mut().poll(context).map(Ok)
        })
        .await
    };
    let result = match response {
        Ok(response) => send(clock, link, &queue, number, &method, response).await,
        Err(ended) => Err(ended),
    };
    if matches!(result, Err(Ended::Aborted)) {
        reply::request_end(link.output(), number, Outcome::Complete);
    }
    result
}

/// Sends a response.
async fn send<B>(
    clock: &FastCgiClock,
    link: &mut Link,
    queue: &BodyQueue,
    number: u16,
    method: &Method,
    response: Response<B>,
) -> Result<(), Ended>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    let (mut head, body) = response.into_parts();
    make_final(&mut head.status);
    // The head and the beginning of the body have one record.
    let mut record = BytesMut::new();
    response_head::write(&mut record, head.status, &mut head.headers, &body, method);
    let mut missing: Option<u64> = content_length(&head.headers);
    let mut body = pin!(has_body(method, head.status).then_some(body));
    let (mut is_cut, mut is_complete, mut is_ended) = (false, false, false);
    // Bytes of the body that are not copied yet: a web server that reads nothing must not have them twice.
    let mut uncopied = Bytes::new();
    poll_fn(|context| {
        loop {
            match poll_trouble(clock, link, queue, context) {
                // It comes too late.
                Poll::Ready(Ended::Aborted) if is_ended => {}
                Poll::Ready(ended) => return Poll::Ready(Err(ended)),
                Poll::Pending => {}
            }
            let mut is_waiting = false;
            while !is_complete && !is_waiting && record.len() + link.output().len() < OUTPUT_BYTES {
                if !uncopied.is_empty() {
                    let room = OUTPUT_BYTES - record.len() - link.output().len();
                    record.extend_from_slice(&uncopied.split_to(room.min(uncopied.len())));
                    continue;
                }
                if is_cut {
                    is_complete = true;
                    continue;
                }
                let polled = match body.as_mut().as_pin_mut() {
                    Some(body) => body.poll_frame(context),
                    None => Poll::Ready(None),
                };
                match polled {
                    Poll::Pending => is_waiting = true,
                    Poll::Ready(Some(Ok(frame))) => {
                        // Trailers are dropped: CGI has no place for them.
                        let Ok(mut data) = frame.into_data() else { continue };
                        if let Some(missing) = &mut missing {
                            // A body that is longer ends there, as with HTTP/1: the rest may have a gigabyte. A script may go on after a
                            // body of the right length.
                            is_cut = data.len() as u64 > *missing;
                            data.truncate(usize::try_from(*missing).unwrap_or(usize::MAX));
                            *missing -= data.len() as u64;
                        }
                        uncopied = data;
                    }
                    Poll::Ready(Some(Err(error))) => {
                        tracing::debug!(%error, "a response broke off");
                        return Poll::Ready(Err(Ended::Broken));
                    }
                    Poll::Ready(None) if body.is_some() && missing.is_some_and(|missing| missing > 0) => {
                        tracing::debug!("a response is shorter than its Content-Length");
                        return Poll::Ready(Err(Ended::Broken));
                    }
                    Poll::Ready(None) => is_complete = true,
                }
            }
            if !record.is_empty() {
                reply::response_part(link.output(), number, &record);
                record = BytesMut::new();
            }
            if is_complete && !is_ended {
                is_ended = true;
                // The request ends: its line is written to the access log.
                body.set(None);
                reply::response_end(link.output(), number);
            }
            match link.poll_flush(context) {
                Poll::Ready(Ok(())) if is_complete => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) if is_waiting => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Ended::Left)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// Reads the rest of the request, and ready when it goes no further.
fn poll_trouble(clock: &FastCgiClock, link: &mut Link, queue: &BodyQueue, context: &mut Context<'_>) -> Poll<Ended> {
    if let Some(reason) = clock.poll_overdue(context) {
        return Poll::Ready(Ended::Overdue(reason));
    }
    while queue.poll_room(context) {
        match ready!(link.poll_piece(context)) {
            Ok(RequestPiece::Body(part)) => queue.push(part),
            Ok(RequestPiece::BodyEnd) => queue.end(),
            Ok(RequestPiece::Abort) => return Poll::Ready(Ended::Aborted),
            // The reader does not make others here.
            Ok(_) => {}
            Err(error) => {
                queue.lose();
                return Poll::Ready(error.into());
            }
        }
    }
    Poll::Pending
}

// === impl Ended ===

impl From<LinkError> for Ended {
    fn from(error: LinkError) -> Ended {
        match error {
            LinkError::Closed => Ended::Left,
            LinkError::Violation(violation) => Ended::Violation(violation),
        }
    }
}
