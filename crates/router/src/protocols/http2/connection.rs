//! A client's connection, from the preface to its end: h2 on a watched socket, and a task for each request.

use crate::net::peer::Peer;
use crate::net::socket::Socket;
use crate::protocols::connection::boxed::boxed;
use crate::protocols::connection::framing::content_length;
use crate::protocols::connection::heads::request_head;
use crate::protocols::connection::limits::{MAX_HEAD_BYTES, MAX_HEADERS};
use crate::protocols::connection::priority::PriorityField;
use crate::protocols::connection::rejection::{log_closed, log_refused, log_rejection};
use crate::protocols::http2::clock::{Ending, MultiplexedClock};
use crate::protocols::http2::request_body::RequestBody;
use crate::protocols::http2::send_room::MOST_OF_STREAM;
use crate::protocols::http2::stream;
use crate::protocols::http2::stream_clock::StreamClock;
use crate::protocols::http2::watched::Watched;
use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::header::UPGRADE;
use http::{Request, Response, StatusCode};
use hyper::body::Body;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::task::spawn_local;

pub use crate::protocols::http2::frames::PREFACE;

/// How many bytes of one request's body may be on their way, and wait here. Over 100 ms, this is 5 MB a second.
const STREAM_WINDOW_BYTES: u32 = 512 * 1024;
/// The same for all requests of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// h2 answers a larger head 431 by itself, without a line in the logs; those between this and the limit of all versions
/// are answered here. Each header counts 32 bytes more than in HTTP/1.
const HEADER_LIST_BYTES: u32 = 2 * MAX_HEAD_BYTES as u32 + 32 * MAX_HEADERS as u32;

/// Serves a connection to its end. These bytes of it were read already. `answer` makes a response of each request.
///
/// Returns the status for the access log, if the client has sent bytes that are no request of HTTP/2.
pub async fn serve<B, F>(
    clock: Rc<MultiplexedClock>,
    socket: Socket,
    read_before: Bytes,
    peer: Rc<Peer>,
    max_concurrent_streams: u32,
    answer: impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F,
) -> Option<StatusCode>
where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>> + 'static,
{
    let watched = Watched::new(socket, read_before, Rc::clone(&clock));
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(MOST_OF_STREAM)
        .max_concurrent_streams(max_concurrent_streams)
        // A usual client may leave a page with many requests while the router is busy. The account of `frames` is the limit.
        .max_pending_accept_reset_streams(max_concurrent_streams as usize)
        .max_header_list_size(HEADER_LIST_BYTES)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(watched.clone());
    // In a box: a connection keeps the memory of its largest part for as long as it lives.
    let mut handshake = Box::pin(handshake);
    let shaken = poll_fn(|context| match clock.poll_ending(context) {
        None | Some(Ending::Graceful) => match handshake.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => send_turn(&watched, context).map(|()| None),
        },
        Some(_) => Poll::Ready(None),
    });
    let result = match shaken.await {
        None => return None,
        Some(Err(error)) => Err(error),
        Some(Ok(connection)) => {
            drop(handshake);
            run(&clock, &watched, connection, &peer, answer).await
        }
    };
    let mut status = None;
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
        match error.reason().filter(|_| error.is_library()) {
            Some(Reason::ENHANCE_YOUR_CALM) => {
                log_closed(&peer, "the client resets too many requests, or sends too many small frames");
            }
            // A head that cannot be decoded, or frames that break the rules: GOAWAY is the answer.
            Some(reason @ (Reason::PROTOCOL_ERROR | Reason::COMPRESSION_ERROR | Reason::FRAME_SIZE_ERROR)) => {
                log_rejection(&peer, StatusCode::BAD_REQUEST, reason.description());
                status = Some(StatusCode::BAD_REQUEST);
            }
            _ => {}
        }
    }
    // Otherwise the socket would stay open.
    drop(watched);
    // Their tasks notice the end of the connection, and write their lines to the access log.
    poll_fn(|context| clock.poll_without_streams(context)).await;
    status
}

/// Runs h2 until the connection is closed, or must be.
async fn run<B, F>(
    clock: &Rc<MultiplexedClock>,
    watched: &Watched,
    connection: Connection<Watched, Bytes>,
    peer: &Rc<Peer>,
    answer: impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F,
) -> Result<(), h2::Error>
where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>> + 'static,
{
    let mut connection = pin!(connection);
    let mut announced = None;
    poll_fn(|context| {
        let ending = clock.poll_ending(context);
        if ending != announced {
            announced = ending;
            match ending {
                Some(Ending::Graceful) => connection.graceful_shutdown(),
                Some(Ending::Abrupt(reason)) => {
                    log_closed(peer, reason);
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
                Some(Ending::Now) => return Poll::Ready(Ok(())),
                None => {}
            }
        }
        loop {
            match connection.poll_accept(context) {
                Poll::Ready(Some(Ok((request, respond)))) => begin(clock, peer, request, respond, &answer),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return send_turn(watched, context).map(Ok),
            }
        }
    })
    .await
}

/// Sends what h2 has written in its turn. Ready when the client has left.
fn send_turn(watched: &Watched, context: &mut Context<'_>) -> Poll<()> {
    match watched.poll_send(context) {
        Poll::Ready(Err(error)) => {
            tracing::debug!(%error, "a connection ended early");
            Poll::Ready(())
        }
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
    }
}

/// Begins to answer a request, in a task of its own.
fn begin<B, F>(
    connection: &Rc<MultiplexedClock>,
    peer: &Rc<Peer>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: &impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F,
) where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>> + 'static,
{
    if connection.refuses_requests() {
        return respond.send_reset(Reason::REFUSED_STREAM);
    }
    let (mut head, body) = request.into_parts();
    let open = match connection.stream_began(respond.stream_id().as_u32(), &head) {
        Ok(open) => open,
        Err(excess) => {
            log_refused(peer, excess);
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
    };
    let refusal = request_head::normalise(&mut head).err();
    let expects_continue = request_head::expects_continue(&head.headers);
    let clock = Rc::new(StreamClock::new(Rc::clone(connection), respond, refusal, expects_continue));
    // h2 refuses the header in requests: it is there only because a WebSocket is asked for.
    let body = if head.headers.contains_key(UPGRADE) {
        clock.keep_bytes(body);
        RequestBody::empty(Rc::clone(&clock))
    } else {
        RequestBody::new(body, content_length(&head.headers), Rc::clone(&clock))
    };
    let method = head.method.clone();
    let priority = PriorityField::of(&head.headers);
    let request = Request::from_parts(head, body);
    // In a box: a task copies its future several times.
    let answer = boxed(|| answer(Rc::clone(peer), Rc::clone(&clock), request));
    spawn_local(stream::run(open, clock, method, priority, answer));
}
