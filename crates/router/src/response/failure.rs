//! The answers that are howdah's own: a status, a short page, and for 5xx a line in the log that says why.

use crate::http1::strictness::HeadRefusal;
use crate::request::authority::BadAuthority;
use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

/// A response, or the failure that is answered in its place.
pub type Answer<B> = Result<Response<B>, Failure>;

/// Why a request is not answered by an application or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request itself is wrong.
    BadRequest(&'static str),
    /// Nothing is there.
    NotFound,
    /// It is there, and the router's user may not read it.
    Forbidden,
    /// TRACE and CONNECT.
    MethodNotAllowed,
    /// The body did not arrive in time.
    RequestTimeout,
    /// The body has no length, and `settings/http/chunked_transform` is off.
    LengthRequired,
    /// The body is longer than `settings/http/max_body_size`.
    BodyTooLarge,
    /// The target has no end.
    TargetTooLong,
    /// The request's head has no end, or does not fit into a slot.
    HeadTooLarge,
    /// No way to encode the response is one that the client accepts.
    NotAcceptable,
    /// A transfer coding that howdah does not have.
    NotImplemented,
    /// Another version of HTTP.
    VersionNotSupported,
    /// Something of ours failed: a full disk, no descriptors.
    Internal,
    /// The worker died, or wrote no response; no upstream did.
    BadGateway,
    /// The worker died before its response had begun.
    WorkerDied {
        /// Something of the response had come: the request cannot be run once more.
        had_begun: bool,
    },
    /// No worker took it in time, or would.
    Unavailable {
        /// When to try again, in seconds.
        retry_after: u32,
    },
    /// Whoever was to answer, a worker or an upstream, took too long.
    GatewayTimeout,
}

// === impl Failure ===

impl Failure {
    /// The status code of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Failure::BadRequest(_) => StatusCode::BAD_REQUEST,
            Failure::NotFound => StatusCode::NOT_FOUND,
            Failure::Forbidden => StatusCode::FORBIDDEN,
            Failure::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Failure::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Failure::LengthRequired => StatusCode::LENGTH_REQUIRED,
            Failure::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Failure::TargetTooLong => StatusCode::URI_TOO_LONG,
            Failure::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Failure::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Failure::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Failure::VersionNotSupported => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Failure::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Failure::BadGateway | Failure::WorkerDied { .. } => StatusCode::BAD_GATEWAY,
            Failure::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Failure::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The whole answer.
    pub fn response(self) -> Response<Bytes> {
        let mut response = page(self.status());
        let headers = response.headers_mut();
        match self {
            Failure::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
                // Who wants a tunnel does not speak HTTP any more.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Failure::Unavailable { retry_after } => {
                headers.insert(RETRY_AFTER, retry_after.into());
            }
            // What follows on the connection can't be told from the rest of this request.
            Failure::BadRequest(_)
            | Failure::LengthRequired
            | Failure::BodyTooLarge
            | Failure::RequestTimeout
            | Failure::TargetTooLong
            | Failure::NotImplemented
            | Failure::VersionNotSupported => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

impl From<HeadRefusal> for Failure {
    fn from(refusal: HeadRefusal) -> Failure {
        match refusal {
            HeadRefusal::Bad(why) => Failure::BadRequest(why),
            HeadRefusal::TargetTooLong => Failure::TargetTooLong,
            HeadRefusal::HeadTooLarge => Failure::HeadTooLarge,
            HeadRefusal::UnknownCoding => Failure::NotImplemented,
            HeadRefusal::Version => Failure::VersionNotSupported,
        }
    }
}

impl From<BadAuthority> for Failure {
    fn from(BadAuthority(why): BadAuthority) -> Failure {
        Failure::BadRequest(why)
    }
}

/// A short page that names the status.
pub fn page(status: StatusCode) -> Response<Bytes> {
    let reason = status.canonical_reason().unwrap_or("Unknown");
    let body = format!(
        "<!DOCTYPE html>\n<html><head><title>{0} {reason}</title></head><body><h1>{0} {reason}</h1></body></html>\n",
        status.as_u16()
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}
