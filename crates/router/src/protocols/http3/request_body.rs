//! A request's body on a stream. The client may send as many bytes as its windows allow; they grow when bytes are taken,
//! so that a reader that is slow slows the client down. Trailers are dropped.

use crate::protocols::http3::stream_clock::StreamClock;
use crate::protocols::http3::transport::Receiving;
use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::RequestStream;
use hyper::body::{Body, Frame, SizeHint};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A request's body.
pub struct RequestBody {
    stream: RequestStream<Receiving, Bytes>,
    /// Bytes that came with the head, or their error.
    first: Option<io::Result<Bytes>>,
    has_ended: bool,
    /// How many bytes are missing, if the client has announced a length.
    missing: Option<u64>,
    clock: Rc<StreamClock>,
}

// === impl RequestBody ===

impl RequestBody {
    /// The body of the request with this clock. It looks at the bytes that have come already: most requests have none.
    pub async fn new(
        stream: RequestStream<Receiving, Bytes>,
        length: Option<u64>,
        clock: Rc<StreamClock>,
    ) -> RequestBody {
        let mut body = RequestBody { stream, first: None, has_ended: false, missing: length, clock };
        poll_fn(|context| {
            if let Poll::Ready(first) = body.poll_stream(context) {
                body.first = first.transpose();
            }
            Poll::Ready(())
        })
        .await;
        body
    }

    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.has_ended {
            return Poll::Ready(Ok(None));
        }
        let data = ready!(self.stream.poll_recv_data(context)).map_err(io::Error::other)?;
        let data = data.map(|mut data| data.copy_to_bytes(data.remaining()));
        let length = data.as_ref().map_or(0, Bytes::len) as u64;
        self.has_ended = data.is_none();
        if let Some(missing) = &mut self.missing {
            if if self.has_ended { *missing > 0 } else { length > *missing } {
                // RFC 9114, 4.1.2.
                self.clock.set_malformed();
                return Poll::Ready(Err(io::Error::other("the body does not have the length of Content-Length")));
            }
            *missing -= length;
        }
        Poll::Ready(Ok(data))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first.map(Frame::data)));
        }
        let polled = self.poll_stream(context);
        if polled.is_pending() {
            self.clock.ask_for_body();
        }
        Poll::Ready(ready!(polled).transpose().map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()).map_or(0, Bytes::len) as u64;
        match self.missing {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(missing) => SizeHint::with_exact(missing + first),
            None => SizeHint::default(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.has_ended {
            // The response may be whole nevertheless (RFC 9114, 4.1).
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }
}
