//! The body of a response that was spooled: complete in memory, or on its way.

use crate::backends::buffering::answer::AnswerBody;
use crate::response::body::Source;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A response's body: complete in memory, or streamed as the worker writes it.
pub enum SpooledBody {
    /// The whole body.
    Whole(Bytes),
    /// The body as it comes, and how many bytes are left, if that is known.
    Streamed(AnswerBody, Option<u64>),
}

/// The response with this head and this body, of which `length` bytes come if that is known, and `declared` is the length
/// that the worker stated. The framing of the body is howdah's.
pub fn with_body(
    mut response: Response<()>,
    declared: Option<u64>,
    length: Option<u64>,
    body: AnswerBody,
    request: &Parts,
) -> Response<SpooledBody> {
    if response.status() == StatusCode::RESET_CONTENT {
        // RFC 9110, 15.3.6: it has no content. A client that expects none would take a body for the next response.
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        return response.map(|()| SpooledBody::Whole(Bytes::new()));
    }
    match length {
        // The worker wrote another length than it declared: the real one keeps the connection's framing intact.
        Some(length) if request.method != Method::HEAD && declared.is_some_and(|declared| declared != length) => {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        None if request.version == Version::HTTP_10 && declared.is_none() => {
            // Without chunks, only the end of the connection marks the end of the body.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    let body = match body.take_whole() {
        Some(bytes) => SpooledBody::Whole(bytes),
        None => SpooledBody::Streamed(body, length),
    };
    response.map(|()| body)
}

// === impl SpooledBody ===

impl Body for SpooledBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            SpooledBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            SpooledBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            SpooledBody::Streamed(body, left) => body.poll(context).map(|next| {
                next.map(|bytes| {
                    bytes.map(|bytes| {
                        *left = left.map(|left| left.saturating_sub(bytes.len() as u64));
                        Frame::data(bytes)
                    })
                })
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SpooledBody::Whole(bytes) => bytes.is_empty(),
            SpooledBody::Streamed(_, left) => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SpooledBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            SpooledBody::Streamed(_, Some(left)) => SizeHint::with_exact(*left),
            SpooledBody::Streamed(_, None) => SizeHint::default(),
        }
    }
}

impl Source for SpooledBody {
    fn whole(&self) -> Option<&Bytes> {
        match self {
            SpooledBody::Whole(bytes) => Some(bytes),
            SpooledBody::Streamed(..) => None,
        }
    }
}
