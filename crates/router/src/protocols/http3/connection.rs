//! A client's connection, from the handshake to its end: h3 on quinn, and a task for each request.
//!
//! A client may move to another address while requests run. quinn believes a new address at once, and anyone may write any
//! sender's address on a packet: the requests of a connection have the address that the handshake has proven. Behind another
//! one, the connection finishes its requests, and refuses others in the way that lets the client send them on a new one.

use crate::net::peer::Peer;
use crate::protocols::connection::limits::{MAX_HEAD_BYTES, MAX_HEADERS};
use crate::protocols::connection::rejection::{log_closed, log_refused};
use crate::protocols::http3::clock::{Ending, QuicClock};
use crate::protocols::http3::request_body::RequestBody;
use crate::protocols::http3::send_grant::LEAST_SEND_BYTES;
use crate::protocols::http3::stream::Arriving;
use crate::protocols::http3::stream_clock::StreamClock;
use crate::protocols::http3::transport::{Bidirectional, Transport, close};
use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::frame::FrameStream;
use h3::quic::{RecvStream, SendStream};
use h3::server::{Connection, builder};
use h3::stream::BufRecvStream;
use http::{Request, Response};
use hyper::body::Body;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use tokio::task::spawn_local;

#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Event {
    Ending(Ending),
    Stream(Bidirectional),
    /// The client closes the connection, or is gone.
    End(Option<ConnectionError>),
}

/// h3 answers a larger head 431 by itself, without a line in the access log. Each header counts 32 bytes more than in HTTP/1.
const HEADER_LIST_BYTES: u64 = 2 * MAX_HEAD_BYTES as u64 + 32 * MAX_HEADERS as u64;

/// Serves a connection to its end, whose handshake came from `proven`. `answer` makes a response of each request.
pub async fn serve<B, F>(
    clock: Rc<QuicClock>,
    connection: quinn::Connection,
    proven: SocketAddr,
    peer: Peer,
    answer: impl Fn(Rc<Peer>, Rc<StreamClock>, Request<RequestBody>) -> F + Clone + 'static,
) where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
    F: Future<Output = Response<B>> + 'static,
{
    let mut peer = Rc::new(peer);
    let (mut remote, mut send_window) = (proven, LEAST_SEND_BYTES);
    let transport = Transport::new(connection.clone(), Rc::clone(&clock));
    let mut settings = builder();
    let settings = settings.max_field_section_size(HEADER_LIST_BYTES).send_grease(false);
    let mut h3 = match unless_ended(&clock, settings.build(transport)).await {
        Some(Ok(h3)) => h3,
        Some(Err(error)) => return tracing::debug!(%error, "a connection ended early"),
        None => return close(&connection, Code::H3_NO_ERROR, b""),
    };
    let mut announced = None;
    let mut has_accepted = false;
    // Whether GOAWAY has named the streams that are still to come as ones that are not answered.
    let mut refuses = false;
    loop {
        match next(&clock, &mut h3, announced).await {
            Event::Ending(ending) => {
                announced = Some(ending);
                match ending {
                    Ending::Graceful | Ending::Final => {
                        // Without a request so far, h3 announces that none is answered.
                        refuses = ending == Ending::Final || !has_accepted;
                        let announcing = h3.shutdown(if refuses { 1 } else { usize::MAX });
                        // A client that has no room for GOAWAY does not keep the connection.
                        if let Some(Err(_)) = unless_ended(&clock, announcing).await {
                            break;
                        }
                    }
                    Ending::Abrupt(reason) => {
                        log_closed(&peer, reason);
                        close(&connection, Code::H3_EXCESSIVE_LOAD, reason.as_bytes());
                        break;
                    }
                    Ending::Now => break,
                }
            }
            Event::Stream(stream) if refuses => refuse(stream),
            Event::Stream(stream) => {
                has_accepted = true;
                let now = connection.remote_address();
                if now.ip() != proven.ip() {
                    refuse(stream);
                    clock.end(Ending::Final);
                    continue;
                }
                if now != remote {
                    remote = now;
                    peer = Rc::new(peer.moved_to(remote));
                }
                let open = match clock.stream_began() {
                    Ok(open) => open,
                    Err(excess) => {
                        log_refused(&peer, excess);
                        refuse(stream);
                        continue;
                    }
                };
                if clock.send_window() != send_window {
                    send_window = clock.send_window();
                    connection.set_send_window(send_window);
                }
                let resolver = |stream| h3.create_resolver(FrameStream::new(BufRecvStream::new(stream)));
                let arriving = Arriving::new(open, stream, resolver);
                spawn_local(arriving.run(Rc::clone(&peer), answer.clone()));
            }
            Event::End(error) => {
                if let Some(error) = error {
                    tracing::debug!(%error, "a connection ended");
                }
                break;
            }
        }
    }
    // h3 closes the connection, unless it is closed already.
    drop(h3);
    // Their tasks notice the end of the connection, and write their lines to the access log.
    poll_fn(|context| clock.poll_without_streams(context)).await;
}

/// Waits for what the client must have room for; `None` if the connection must end before that.
async fn unless_ended<T>(clock: &QuicClock, sending: impl Future<Output = T>) -> Option<T> {
    let mut sending = pin!(sending);
    poll_fn(|context| match clock.poll_ending(context) {
        Some(Ending::Abrupt(_) | Ending::Now) => Poll::Ready(None),
        _ => sending.as_mut().poll(context).map(Some),
    })
    .await
}

/// The client may send the request elsewhere.
fn refuse(mut stream: Bidirectional) {
    stream.stop_sending(Code::H3_REQUEST_REJECTED.value());
    stream.reset(Code::H3_REQUEST_REJECTED.value());
}

/// Waits for the next event of the connection.
async fn next(clock: &QuicClock, h3: &mut Connection<Transport, Bytes>, announced: Option<Ending>) -> Event {
    poll_fn(|context| {
        let ending = clock.poll_ending(context);
        if let Some(ending) = ending.filter(|_| ending != announced) {
            return Poll::Ready(Event::Ending(ending));
        }
        Poll::Ready(match ready!(h3.poll_accept_request_stream(context)) {
            Ok(Some(stream)) => Event::Stream(stream),
            Ok(None) => Event::End(None),
            Err(error) => Event::End(Some(error)),
        })
    })
    .await
}
