//! A request's body on a stream. The client may send as many bytes as its windows allow; they grow when bytes are taken,
//! so that a reader that is slow slows the client down. Trailers are dropped.

use crate::protocols::http2::stream_clock::StreamClock;
use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A request's body.
pub struct RequestBody {
    /// `None` for a request without a body.
    stream: Option<RecvStream>,
    /// How many bytes are missing, if the client has announced a length; h2 has checked it.
    missing: Option<u64>,
    clock: Rc<StreamClock>,
}

// === impl RequestBody ===

impl RequestBody {
    /// The body of the request with this clock.
    pub fn new(stream: RecvStream, length: Option<u64>, clock: Rc<StreamClock>) -> RequestBody {
        RequestBody { stream: Some(stream), missing: length, clock }
    }

    /// No body.
    pub fn empty(clock: Rc<StreamClock>) -> RequestBody {
        RequestBody { stream: None, missing: None, clock }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let RequestBody { stream, missing, clock } = &mut *self;
        let Some(stream) = stream else { return Poll::Ready(None) };
        let polled = stream.poll_data(context);
        if polled.is_pending() {
            clock.ask_for_body();
        }
        let Some(data) = ready!(polled).transpose()? else { return Poll::Ready(None) };
        stream.flow_control().release_capacity(data.len())?;
        *missing = missing.map(|missing| missing.saturating_sub(data.len() as u64));
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match self.missing {
            Some(missing) => SizeHint::with_exact(missing),
            None if self.is_end_stream() => SizeHint::with_exact(0),
            None => SizeHint::default(),
        }
    }
}
