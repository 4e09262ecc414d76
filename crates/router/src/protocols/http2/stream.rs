//! One request: its answer is awaited while the client may reset the stream, and the response is sent as fast as the
//! client's windows allow.
//!
//! A client that opens no window for `send_timeout` loses the stream (CANCEL). A slow connection that many responses share
//! moves each of them only now and then: while others move, a stream may wait [`PATIENCE`] times as long. While the
//! connection moves, a stream may wait for more urgent ones without a limit.
//!
//! The head of a response waits here, too, while the client reads nothing: windows do not bound what h2 keeps of heads.

use crate::protocols::connection::framing::{content_length, drop_from_trailers, has_body, make_final};
use crate::protocols::connection::heads::head_memory::headers_size;
use crate::protocols::connection::heads::response_head;
use crate::protocols::connection::priority::PriorityField;
use crate::protocols::http2::clock::{MultiplexedClock, OpenStream};
use crate::protocols::http2::send_room::SendTurn;
use crate::protocols::http2::stream_clock::StreamClock;
use crate::protocols::http2::tunnel;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{Method, Response, StatusCode};
use hyper::body::Body;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::timeout;

/// How many times `send_timeout` a stream may wait while other streams of the connection move.
const PATIENCE: u32 = 8;
/// The most bytes of a response that are passed on at once: streams take turns in the connection's window.
const PORTION_BYTES: usize = 16 * 1024;

/// Why a response is not sent to its end.
enum Broken {
    /// The client has reset the stream, or has left.
    ClientLeft,
    /// The response is reset.
    Reset(Reason),
}

/// Answers a request. `answer` makes the response.
pub async fn run<B, F>(mut open: OpenStream, clock: Rc<StreamClock>, method: Method, priority: PriorityField, answer: F)
where
    B: Body<Data = Bytes, Error = io::Error>,
    F: Future<Output = Response<B>>,
{
    let response = {
        let mut answer = pin!(answer);
        poll_fn(|context| match clock.poll_reset(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => answer.as_mut().poll(context).map(Some),
        })
        .await
    };
    if let Some(response) = response {
        send(&mut open, &clock, &method, priority, response).await;
    }
    clock.stream_ended();
}

/// Sends the response. The request ends when its body is dropped.
async fn send<B>(
    open: &mut OpenStream,
    clock: &StreamClock,
    method: &Method,
    priority: PriorityField,
    response: Response<B>,
) where
    B: Body<Data = Bytes, Error = io::Error>,
{
    let Some(mut respond) = clock.take_respond() else { return };
    let (mut head, body) = response.into_parts();
    let head_bytes = headers_size(&head.headers);
    if !open.connection().send_room().takes_heads()
        && (!open.keep_response_head(head_bytes) || !waits_for_room(open.connection(), &mut respond).await)
    {
        tracing::debug!("a client does not take the head of a response: its stream is reset");
        return respond.send_reset(Reason::CANCEL);
    }
    let connection = open.connection();
    connection.send_room().passed_head_on(head_bytes);
    if let Some((received, upstream)) = clock.take_tunnel() {
        drop(body);
        match respond.send_response(response_head::of_tunnel(head), false) {
            Ok(sending) => tunnel::run(connection, received, sending, upstream).await,
            Err(error) => tracing::debug!(%error, "a response was not sent"),
        }
        return;
    }
    if clock.asks_for_tunnel() && head.status.is_success() {
        // The client would take it for a tunnel.
        head.status = StatusCode::NOT_IMPLEMENTED;
    }
    make_final(&mut head.status);
    let has_body = has_body(method, head.status) && !body.is_end_stream();
    let head = response_head::of(head, &body, method);
    let length = content_length(head.headers());
    let changed = PriorityField::of(head.headers());
    let mut stream = match respond.send_response(head, !has_body) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a response was not sent");
            return respond.send_reset(Reason::INTERNAL_ERROR);
        }
    };
    if !has_body {
        return;
    }
    let mut turn = connection.send_turn(stream.stream_id().as_u32(), priority, changed);
    let mut body = pin!(body);
    match send_body(connection, &mut turn, &mut stream, body.as_mut(), length).await {
        Ok(()) | Err(Broken::ClientLeft) => {}
        Err(Broken::Reset(reason)) => stream.send_reset(reason),
    }
}

/// Waits until the head of a response may be passed on. `false` if the client has left, or takes nothing.
async fn waits_for_room(connection: &MultiplexedClock, respond: &mut SendResponse<Bytes>) -> bool {
    let room = poll_fn(|context| match respond.poll_reset(context) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => connection.send_room().poll_head(context).map(|()| true),
    });
    timeout(connection.send_timeout() * PATIENCE, room).await.unwrap_or(false)
}

/// Sends a body of this length, if it is known. A body that is longer is cut there, as with HTTP/1.
async fn send_body<B>(
    connection: &MultiplexedClock,
    turn: &mut SendTurn<'_>,
    stream: &mut SendStream<Bytes>,
    mut body: Pin<&mut B>,
    length: Option<u64>,
) -> Result<(), Broken>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    let mut missing = length;
    loop {
        // A body is not asked for bytes that the client does not take.
        capacity(connection, turn, stream, 1).await?;
        let frame = poll_fn(|context| match poll_left(stream, context) {
            Poll::Ready(()) => Poll::Ready(Err(Broken::ClientLeft)),
            Poll::Pending => body.as_mut().poll_frame(context).map(Ok),
        })
        .await?;
        let mut data = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(frame) => match frame.into_trailers() {
                    Ok(mut trailers) if missing.is_none_or(|missing| missing == 0) => {
                        drop_from_trailers(&mut trailers);
                        return stream.send_trailers(trailers).map_err(|_| Broken::ClientLeft);
                    }
                    _ => continue,
                },
            },
            Some(Err(error)) => {
                tracing::debug!(%error, "a response broke off");
                return Err(Broken::Reset(Reason::INTERNAL_ERROR));
            }
            None if missing.is_some_and(|missing| missing > 0) => {
                tracing::debug!("a response is shorter than its Content-Length");
                return Err(Broken::Reset(Reason::INTERNAL_ERROR));
            }
            None => return stream.send_data(Bytes::new(), true).map_err(|_| Broken::ClientLeft),
        };
        if let Some(missing) = &mut missing {
            data.truncate(usize::try_from(*missing).unwrap_or(usize::MAX));
            *missing -= data.len() as u64;
        }
        let is_last = missing == Some(0) || missing.is_none() && body.is_end_stream();
        while !data.is_empty() {
            let length = capacity(connection, turn, stream, data.len()).await?.min(data.len());
            let ends = is_last && length == data.len();
            stream.send_data(data.split_to(length), ends).map_err(|_| Broken::ClientLeft)?;
            connection.count_sent(turn, length);
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Waits until some bytes may be sent, at most this number.
async fn capacity(
    connection: &MultiplexedClock,
    turn: &mut SendTurn<'_>,
    stream: &mut SendStream<Bytes>,
    wanted: usize,
) -> Result<usize, Broken> {
    let wanted = wanted.min(PORTION_BYTES);
    if turn.is_free() {
        stream.reserve_capacity(wanted);
        if stream.capacity() > 0 {
            return Ok(stream.capacity());
        }
    }
    let mut patience = PATIENCE;
    while patience > 0 {
        // Bytes that are reserved are missing in the connection's window.
        stream.reserve_capacity(0);
        let sent = connection.sent();
        let mut has_room = false;
        let more = async {
            poll_fn(|context| poll_turn(turn, stream, context)).await?;
            has_room = true;
            stream.reserve_capacity(wanted);
            if stream.capacity() > 0 {
                return Ok(stream.capacity());
            }
            let mut granted = pin!(poll_fn(|context| stream.poll_capacity(context)));
            loop {
                match granted.as_mut().await {
                    Some(Ok(0)) => {}
                    Some(Ok(capacity)) => return Ok(capacity),
                    Some(Err(_)) | None => return Err(Broken::ClientLeft),
                }
            }
        };
        match timeout(connection.send_timeout(), more).await {
            Ok(result) => return result,
            Err(_) if connection.sent() == sent => break,
            Err(_) => patience -= u32::from(has_room),
        }
    }
    tracing::debug!("a client takes nothing of a response: its stream is reset");
    Err(Broken::Reset(Reason::CANCEL))
}

/// Ready when it is the stream's turn, or the client has left.
fn poll_turn(
    turn: &mut SendTurn<'_>,
    stream: &mut SendStream<Bytes>,
    context: &mut Context<'_>,
) -> Poll<Result<(), Broken>> {
    match turn.poll(context) {
        Poll::Ready(()) => Poll::Ready(Ok(())),
        Poll::Pending => poll_left(stream, context).map(|()| Err(Broken::ClientLeft)),
    }
}

fn poll_left(stream: &mut SendStream<Bytes>, context: &mut Context<'_>) -> Poll<()> {
    stream.poll_reset(context).map(|_| ())
}
