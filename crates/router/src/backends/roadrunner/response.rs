//! The answer of a worker as an HTTP response.

use crate::backends::roadrunner::answer::AnswerBody;
use crate::backends::roadrunner::exchange::StartedAnswer;
use crate::response::application_head;
use crate::response::body::Source;
use crate::response::failure::Answer;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a worker's response: complete in memory, or streamed as the worker writes it.
pub enum RoadRunnerBody {
    /// The whole body.
    Whole(Bytes),
    /// The body as it comes, and how many bytes are left, if that is known.
    Streamed(AnswerBody, Option<u64>),
}

/// The response to this request.
///
/// # Errors
/// 502 for a status that HTTP does not allow, and for too many headers.
pub fn of(started: StartedAnswer, request: &Parts) -> Answer<RoadRunnerBody> {
    let StartedAnswer { head, length, body } = started;
    let mut response = Response::new(());
    *response.status_mut() = application_head::status(head.status)?;
    let declared = application_head::copy_headers(head.headers.fields(), &mut response)?;
    if response.status() == StatusCode::RESET_CONTENT {
        // RFC 9110, 15.3.6: it has no content. A client that expects none would take a body for the next response.
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        return Ok(response.map(|()| RoadRunnerBody::Whole(Bytes::new())));
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
        Some(bytes) => RoadRunnerBody::Whole(bytes),
        None => RoadRunnerBody::Streamed(body, length),
    };
    Ok(response.map(|()| body))
}

// === impl RoadRunnerBody ===

impl Body for RoadRunnerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            RoadRunnerBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            RoadRunnerBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            RoadRunnerBody::Streamed(body, left) => body.poll(context).map(|next| {
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
            RoadRunnerBody::Whole(bytes) => bytes.is_empty(),
            RoadRunnerBody::Streamed(_, left) => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RoadRunnerBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            RoadRunnerBody::Streamed(_, Some(left)) => SizeHint::with_exact(*left),
            RoadRunnerBody::Streamed(_, None) => SizeHint::default(),
        }
    }
}

impl Source for RoadRunnerBody {
    fn whole(&self) -> Option<&Bytes> {
        match self {
            RoadRunnerBody::Whole(bytes) => Some(bytes),
            RoadRunnerBody::Streamed(..) => None,
        }
    }
}
