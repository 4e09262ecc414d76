//! One request: its answer is awaited while the client may cancel it, and the response is sent as fast as the client's
//! windows allow.
//!
//! The head of a response waits here, too, and counts in the memory of the connection's requests meanwhile: QUIC takes no more
//! of it than the client's windows allow.
//!
//! A client that takes nothing for `send_timeout` loses the stream. A slow connection that many responses share moves each
//! of them only now and then: while others move, a stream may wait [`PATIENCE`] times as long, and without a limit for more
//! urgent ones.

use crate::net::peer::Peer;
use crate::protocols::connection::boxed::boxed;
use crate::protocols::connection::framing::{content_length, drop_from_trailers, has_body, make_final};
use crate::protocols::connection::heads::head_memory::headers_size;
use crate::protocols::connection::heads::{request_head, response_head};
use crate::protocols::connection::priority::PriorityField;
use crate::protocols::connection::rejection::{Excess, log_closed, log_refused};
use crate::protocols::http3::clock::{OpenStream, QuicClock};
use crate::protocols::http3::request_body::RequestBody;
use crate::protocols::http3::send_order::Place;
use crate::protocols::http3::stream_clock::StreamClock;
use crate::protocols::http3::transport::{Bidirectional, Sending, Transport};
use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::Body;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, ready};
use tokio::time::timeout;

/// A request whose head has not been read yet.
pub struct Arriving {
    open: OpenStream,
    resolver: RequestResolver<Transport, Bytes>,
    /// Ready when the client has cancelled the response, or has confirmed all of it, or has left.
    left: Pin<Box<dyn Future<Output = ()>>>,
    is_answered: Rc<Cell<bool>>,
    /// Whether it came before the handshake was complete.
    is_early: bool,
    number: u64,
    rank: Rc<Cell<i32>>,
}

/// Why a response is not sent to its end.
enum Broken {
    /// The client has cancelled it, or has left.
    ClientLeft,
    /// The response is reset.
    Reset(Code),
}

/// Sends a response in its turn.
struct Sender<'c> {
    connection: &'c QuicClock,
    place: Place<'c>,
    stream: &'c mut SendHalf,
}

type SendHalf = RequestStream<Sending, Bytes>;

/// How many times `send_timeout` a stream may wait while other streams of the connection move.
const PATIENCE: u32 = 8;
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
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
        let (is_early, number, rank) = (stream.is_early(), stream.number(), stream.rank());
        Arriving { open, resolver: resolve(stream), left, is_answered, is_early, number, rank }
    }

    /// Reads the head, and answers the request. `answer` makes the response.
    pub async fn run<B, F>(self, peer: Rc<Peer>, answer: impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F)
    where
        B: Body<Data = Bytes, Error = io::Error>,
        F: Future<Output = Response<B>>,
    {
        let Arriving { open, resolver, mut left, is_answered, is_early, number, rank } = self;
        let resolving = timeout(open.connection().header_read_timeout(), resolver.resolve_request());
        let resolved = tokio::select! {
            biased;
            resolved = resolving => resolved,
            () = &mut left => return open.was_cancelled(),
        };
        let Ok(resolved) = resolved else {
            return log_closed(&peer, "the head of a request took too long: its stream is reset");
        };
        let (mut head, stream) = match resolved {
            Ok((request, stream)) => (request.into_parts().0, stream),
            Err(error) => {
                tracing::debug!(%error, "a request has no head that can be read");
                open.was_cancelled();
                if open.connection().take_refusal() {
                    log_refused(&peer, Excess::Memory);
                }
                if let StreamError::HeaderTooBig { .. } = error {
                    log_closed(&peer, "the head of a request is too large: answered 431");
                }
                return;
            }
        };
        is_answered.set(true);
        let (mut send, mut receive) = stream.split();
        let Some(_held) = open.hold(&head) else {
            log_refused(&peer, Excess::Memory);
            receive.stop_sending(Code::H3_REQUEST_REJECTED);
            return send.stop_stream(Code::H3_REQUEST_REJECTED);
        };
        let refusal = request_head::check_no_connection_fields(&head.headers)
            .and_then(|()| request_head::normalise(&mut head))
            .err();
        if is_early && !open.connection().is_confirmed() && !confirm(&mut head, open.connection(), &mut left).await {
            return open.was_cancelled();
        }
        let clock = Rc::new(StreamClock::new(refusal, request_head::expects_continue(&head.headers)));
        let length = content_length(&head.headers);
        let body = RequestBody::new(receive, length, Rc::clone(&clock)).await;
        let method = head.method.clone();
        let requested = PriorityField::of(&head.headers);
        let response = {
            // In a box: a task copies its future several times.
            let mut answer = boxed(|| answer(peer, Rc::clone(&clock), Request::from_parts(head, body)));
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
                let changed = PriorityField::of(response.headers());
                let place = open.connection().send_order().place(number, requested, changed, rank);
                let mut sender = Sender { connection: open.connection(), place, stream: &mut send };
                let responded = respond(&mut sender, &clock, &method, &mut left, response).await;
                drop(sender);
                match responded {
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
async fn send_interim_responses(clock: &StreamClock, send: &mut SendHalf) -> Infallible {
    loop {
        let response = clock.next_interim().await;
        if let Err(error) = send.send_response(response).await {
            tracing::debug!(%error, "an interim response is dropped");
            std::future::pending::<()>().await;
        }
    }
}

/// Treats a request that came before the handshake was complete (RFC 8470): another client may send a copy of it. A method
/// that changes nothing is answered, and marked for the application; others wait for the end of the handshake. `false` if
/// the client leaves before.
async fn confirm(head: &mut Parts, connection: &QuicClock, left: &mut Pin<Box<dyn Future<Output = ()>>>) -> bool {
    if head.method.is_safe() {
        head.headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
        return true;
    }
    tokio::select! {
        biased;
        () = connection.until_confirmed() => true,
        () = left => false,
    }
}

/// Sends the response. The request ends when its body is dropped.
async fn respond<B>(
    sender: &mut Sender<'_>,
    clock: &StreamClock,
    method: &Method,
    left: &mut Pin<Box<dyn Future<Output = ()>>>,
    response: Response<B>,
) -> Result<(), Broken>
where
    B: Body<Data = Bytes, Error = io::Error>,
{
    while let Some(response) = clock.take_interim() {
        sender.send_head(response).await?;
    }
    let (mut head, body) = response.into_parts();
    make_final(&mut head.status);
    let has_body = has_body(method, head.status) && !body.is_end_stream();
    let head = response_head::of(head, &body, method);
    let length = content_length(head.headers());
    sender.send_head(head).await?;
    if has_body {
        send_body(sender, left, pin!(body), length).await?;
    }
    sender.finish().await
}

/// Sends a body of this length, if it is known. A body that is longer is cut there, as with HTTP/1.
async fn send_body<B>(
    sender: &mut Sender<'_>,
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
                Err(frame) => match frame.into_trailers() {
                    Ok(mut trailers) if missing.is_none_or(|missing| missing == 0) => {
                        drop_from_trailers(&mut trailers);
                        return sender.send_trailers(trailers).await;
                    }
                    _ => continue,
                },
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
            sender.send_data(data.split_to(data.len().min(FRAME_BYTES))).await?;
        }
        if missing == Some(0) || missing.is_none() && body.is_end_stream() {
            return Ok(());
        }
    }
}

// === impl Sender ===

impl Sender<'_> {
    async fn send_head(&mut self, head: Response<()>) -> Result<(), Broken> {
        let bytes = headers_size(head.headers());
        sent(self.connection, &self.place, bytes, self.stream.send_response(head)).await
    }

    async fn send_data(&mut self, data: Bytes) -> Result<(), Broken> {
        let length = data.len();
        sent(self.connection, &self.place, 0, self.stream.send_data(data)).await?;
        self.connection.count_sent(length);
        Ok(())
    }

    async fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), Broken> {
        let bytes = headers_size(&trailers);
        sent(self.connection, &self.place, bytes, self.stream.send_trailers(trailers)).await
    }

    async fn finish(&mut self) -> Result<(), Broken> {
        sent(self.connection, &self.place, 0, self.stream.finish()).await
    }
}

/// Waits until QUIC has taken bytes. `head_bytes` count in the memory of heads if they must wait; those of bodies, which have limits
/// of their own, do not.
async fn sent(
    connection: &QuicClock,
    place: &Place<'_>,
    head_bytes: usize,
    sending: impl Future<Output = Result<(), StreamError>>,
) -> Result<(), Broken> {
    let mut sending = pin!(sending);
    let mut in_turn = poll_fn(|context| {
        ready!(place.poll(context));
        let polled = sending.as_mut().poll(context);
        place.tried(polled.is_ready(), context);
        polled
    });
    // Most are taken at once, without a timer.
    let first = poll_fn(|context| Poll::Ready(Pin::new(&mut in_turn).poll(context))).await;
    let result = match first {
        Poll::Ready(result) => Some(result),
        Poll::Pending => {
            let Some(_held) = connection.hold_bytes(head_bytes) else {
                tracing::debug!("a client does not take the head of a response: its stream is reset");
                return Err(Broken::Reset(Code::H3_REQUEST_CANCELLED));
            };
            wait(connection, place, Pin::new(&mut in_turn)).await
        }
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

async fn wait<T>(
    connection: &QuicClock,
    place: &Place<'_>,
    mut sending: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut patience = PATIENCE;
    while patience > 0 {
        let before = connection.sent();
        match timeout(connection.send_timeout(), sending.as_mut()).await {
            Ok(result) => return Some(result),
            Err(_) if connection.sent() == before => return None,
            Err(_) => patience -= u32::from(!place.is_behind()),
        }
    }
    None
}
