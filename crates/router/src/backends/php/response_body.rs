//! The body of a script's response: complete in memory, or streamed while PHP writes it.

use crate::backends::php::port::{self, CancelOnDrop};
use crate::response::body::Source;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a script's response. Dropping it before its end notifies PHP that the client has left.
pub struct PhpBody {
    /// The bytes that came with the head.
    first: Bytes,
    /// The rest of the response; `None` once there is no more.
    rest: Option<CancelOnDrop>,
    is_streamed: bool,
}

// === impl PhpBody ===

impl PhpBody {
    /// The body of a complete response.
    pub fn complete(bytes: Bytes) -> PhpBody {
        PhpBody { first: bytes, rest: None, is_streamed: false }
    }

    /// A body that begins with these bytes, and goes on with the bytes that the request still produces.
    pub fn streamed(first: Bytes, rest: CancelOnDrop) -> PhpBody {
        PhpBody { first, rest: Some(rest), is_streamed: true }
    }
}

impl Body for PhpBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.first)))));
        }
        let Some(rest) = &self.rest else { return Poll::Ready(None) };
        let next = ready!(port::poll_body(&rest.port, &rest.running, context));
        if next.is_none() {
            self.rest = None;
        }
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_streamed { SizeHint::default() } else { SizeHint::with_exact(self.first.len() as u64) }
    }
}

impl Source for PhpBody {
    fn whole(&self) -> Option<&Bytes> {
        if self.is_streamed { None } else { Some(&self.first) }
    }
}
