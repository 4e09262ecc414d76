//! One request: its answer is awaited while the client may cancel it, and the response is sent as fast as the client's
//! windows allow.
//!
//! A client that takes nothing for `send_timeout` loses the stream. A slow connection that many responses share moves each
//! of them only now and then: while others move, a stream may wait [`PATIENCE`] times as long.

use crate::connection::framing::{content_length, has_body, make_final};
use crate::connection::rejection::{log_closed, log_refused};
use crate::connection::{request_head, response_head};
use crate::http3::clock::{OpenStream, QuicClock};
use crate::http3::request_body::RequestBody;
use crate::http3::stream_clock::StreamClock;
use crate::http3::transport::{Bidirectional, Sending, Transport};
use crate::net::peer::Peer;
use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::header::EXPECT;
use http::{Method, Request, Response};
use hyper::body::Body;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use tokio::time::timeout;

/// A request whose head has not been read yet.
pub struct Arriving {
    open: OpenStream,
    resolver: RequestResolver<Transport, Bytes>,
    /// Ready when the client has cancelled the response, or has confirmed all of it, or has left.
    left: Pin<Box<dyn Future<Output = ()>>>,
    is_answered: Rc<Cell<bool>>,
}

/// Why a response is not sent to its end.
enum Broken {
    /// The client has cancelled it, or has left.
    ClientLeft,
    /// The response is reset.
    Reset(Code),
}

type Send = RequestStream<Sending, Bytes>;

/// How many times `send_timeout` a stream may wait while other streams of the connection move.
const PATIENCE: u32 = 8;
/// The most bytes of a frame.
const FRAME_BYTES: usize = 16 * 1024;

// === impl Arriving ===

impl Arriving {
    /// A request on this stream.
    pub fn new(
        open: OpenStream,
        stream: Bidirectional,
        resolve: impl FnOnce(Bidirectional) -> RequestResolver<Transport, Bytes>,
    ) -> Arriving {
        let (left, is_answered) = (Box::pin(stream.cancelled()), stream.is_answered());
        Arriving { open, resolver: resolve(stream), left, is_answered }
    }

    /// Reads the head, and answers the request. `answer` makes the response.
    pub async fn run<B, F>(self, peer: Rc<Peer>, answer: impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F)
    where
        B: Body<Data = Bytes, Error = io::Error>,
        F: Future<Output = Response<B>>,
    {
        let Arriving { open, resolver, mut left, is_answered } = self;
        let resolved = match timeout(open.connection().header_read_timeout(), resolver.resolve_request()).await {
            Ok(resolved) => resolved,
            Err(_) => return log_closed(&peer, "the head of a request took too long: its stream is reset"),
        };
        let (head, stream) = match resolved {
            Ok((request, stream)) => (request.into_parts().0, stream),
            Err(error) => {
                tracing::debug!(%error, "a request has no head that can be read");
                open.was_cancelled();
                if let StreamError::HeaderTooBig { .. } = error {
                    log_closed(&peer, "the head of a request is too large: answered 431");
                }
                return;
            }
        };
        is_answered.set(true);
        let mut head = head;
        let (mut send, mut receive) = stream.split();
        let Some(_held) = open.hold(&head) else {
            log_refused(&peer);
            receive.stop_sending(Code::H3_REQUEST_REJECTED);
            return send.stop_stream(Code::H3_REQUEST_REJECTED);
        };
        let refusal = request_head::check_no_connection_fields(&head.headers)
            .and_then(|()| request_head::normalise(&mut head))
            .err();
        let expects_continue =
            head.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let clock = Rc::new(StreamClock::new(refusal, expects_continue));
        let length = content_length(&head.headers);
        let body = RequestBody::new(receive, length, Rc::clone(&clock)).await;
        let method = head.method.clone();
        let response = {
            let mut answer = pin!(answer(peer, Rc::clone(&clock), Request::from_parts(head, body)));
            tokio::select! {
                biased;
                response = &mut answer => Some(response),
                () = &mut left => None,
                never = send_interim_responses(&clock, &mut send) => match never {},
            }
        };
        match response {
            // Its error was an answer: the client must not take it for one to a valid request.
            _ if clock.is_malformed() => send.stop_stream(Code::H3_MESSAGE_ERROR),
            None => open.was_cancelled(),
            Some(response) => {
                match respond(open.connection(), &clock, &method, &mut send, &mut left, response).await {
                    // The end of the connection must not overtake the response.
                    Ok(()) => drop(timeout(open.connection().send_timeout() * PATIENCE, left).await),
                    Err(Broken::ClientLeft) => {
                        open.was_cancelled();
                        send.stop_stream(Code::H3_REQUEST_CANCELLED);
                    }
                    Err(Broken::Reset(code)) => send.stop_stream(code),
                }
            }
        }
        clock.request_ended();
    }
}

/// Sends interim responses until this is dropped. A client that does not take one gets no more of them.
async fn send_interim_responses(clock: &StreamClock, send: &mut Send) -> Infallible {
    loop {
        let response = clock.next_interim().await;
        if let Err(error) = send.send_response(response).await {
            tracing::debug!(%error, "an interim response is dropped");
            std::future::pending::<()>().await;
        }
    }
}

/// Sends the response. The request ends when its body is dropped.
async fn respond<B>(
    connection: &QuicClock,
    clock: &StreamClock,
    method: &Method,
    send: &mut Send,
    left: &mut Pin<Box<dyn Future<Output = ()>>>,
    response: Response<B>,
) -> Result<(), Broken>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    while let Some(response) = clock.take_interim() {
        sent(connection, send.send_response(response)).await?;
    }
    let (mut head, body) = response.into_parts();
    make_final(&mut head.status);
    let has_body = has_body(method, head.status) && !body.is_end_stream();
    let head = response_head::of(head, &body, method);
    let length = content_length(head.headers());
    sent(connection, send.send_response(head)).await?;
    if has_body {
        send_body(connection, send, left, pin!(body), length).await?;
    }
    sent(connection, send.finish()).await
}

/// Sends a body of this length, if it is known. A body that is longer is cut there, as with HTTP/1.
async fn send_body<B>(
    connection: &QuicClock,
    send: &mut Send,
    left: &mut Pin<Box<dyn Future<Output = ()>>>,
    mut body: Pin<&mut B>,
    length: Option<u64>,
) -> Result<(), Broken>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    let mut missing = length;
    loop {
        let frame = poll_fn(|context| match left.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Broken::ClientLeft)),
            Poll::Pending => body.as_mut().poll_frame(context).map(Ok),
        });
        let mut data = match frame.await? {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                // Trailers are dropped, as with HTTP/1.
                Err(_) => continue,
            },
            Some(Err(error)) => {
                tracing::debug!(%error, "a response broke off");
                return Err(Broken::Reset(Code::H3_INTERNAL_ERROR));
            }
            None if missing.is_some_and(|missing| missing > 0) => {
                tracing::debug!("a response is shorter than its Content-Length");
                return Err(Broken::Reset(Code::H3_INTERNAL_ERROR));
            }
            None => return Ok(()),
        };
        if let Some(missing) = &mut missing {
            data.truncate(usize::try_from(*missing).unwrap_or(usize::MAX));
            *missing -= data.len() as u64;
        }
        while !data.is_empty() {
            let portion = data.split_to(data.len().min(FRAME_BYTES));
            let length = portion.len();
            sent(connection, send.send_data(portion)).await?;
            connection.count_sent(length);
        }
        if missing == Some(0) || missing.is_none() && body.is_end_stream() {
            return Ok(());
        }
    }
}

/// Waits until QUIC has taken bytes.
async fn sent(connection: &QuicClock, sending: impl Future<Output = Result<(), StreamError>>) -> Result<(), Broken> {
    let mut sending = pin!(sending);
    // Most are taken at once, without a timer.
    let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
    let result = match first {
        Poll::Ready(result) => Some(result),
        Poll::Pending => wait(connection, sending).await,
    };
    match result {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            tracing::debug!(%error, "a response is not sent to its end");
            Err(Broken::ClientLeft)
        }
        None => {
            tracing::debug!("a client takes nothing of a response: its stream is reset");
            Err(Broken::Reset(Code::H3_REQUEST_CANCELLED))
        }
    }
}

async fn wait<T>(connection: &QuicClock, mut sending: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    for _ in 0..PATIENCE {
        let before = connection.sent();
        match timeout(connection.send_timeout(), sending.as_mut()).await {
            Ok(result) => return Some(result),
            Err(_) if connection.sent() == before => return None,
            Err(_) => {}
        }
    }
    None
}
