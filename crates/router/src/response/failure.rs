//! The responses of howdah itself: a status, a short page, and for 5xx a line in the log with the reason.

use crate::file_access::FilesUnavailable;
use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::request::authority::BadAuthority;
use bytes::Bytes;
use howdah_metrics::labels::Cause;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

/// A response, or the failure that is answered in its place.
pub type Answer<B> = Result<Response<B>, Failure>;

/// Why a request is not answered by an application or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request is wrong, in this part.
    BadRequest(&'static str),
    /// There is no such file, script or route.
    NotFound,
    /// The router's user may not read the file.
    Forbidden,
    /// The client may try another connection.
    Misdirected,
    /// TRACE and CONNECT.
    MethodNotAllowed,
    /// The head or the body did not arrive in time.
    RequestTimeout,
    /// The body has no length, and `settings/http/chunked_transform` is off.
    LengthRequired,
    /// The body is longer than `settings/http/max_body_size`.
    BodyTooLarge,
    /// The target has no end within the limit.
    TargetTooLong,
    /// The request's head has no end within the limit, or does not fit into a slot.
    HeadTooLarge,
    /// The client accepts no available encoding of the response.
    NotAcceptable,
    /// An unknown transfer coding.
    NotImplemented,
    /// Another version of HTTP.
    VersionNotSupported,
    /// howdah failed: a full disk, no descriptors.
    Internal,
    /// The worker, or the upstream, sent no valid response.
    BadGateway,
    /// The worker died before its response had begun.
    WorkerDied {
        /// Bytes of the response had come: the request cannot be run once more.
        had_begun: bool,
    },
    /// No worker took the request in time, or would.
    Unavailable {
        /// When to try again, in seconds.
        retry_after: u32,
    },
    /// The worker, the upstream, or the file system took too long.
    GatewayTimeout,
    /// The client has sent more requests than the action's limit allows.
    TooManyRequests {
        /// When to try again, in seconds.
        retry_after: u32,
    },
}

/// `Retry-After` while a file system does not answer, in seconds.
const FILES_RETRY_AFTER: u32 = 10;

// === impl Failure ===

impl Failure {
    /// The status code of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Failure::BadRequest(_) => StatusCode::BAD_REQUEST,
            Failure::NotFound => StatusCode::NOT_FOUND,
            Failure::Forbidden => StatusCode::FORBIDDEN,
            Failure::Misdirected => StatusCode::MISDIRECTED_REQUEST,
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
            Failure::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Why the request is refused, for its numbers; `None` for an answer that is no refusal.
    pub fn cause(self) -> Option<Cause> {
        match self {
            Failure::BadRequest(_)
            | Failure::MethodNotAllowed
            | Failure::RequestTimeout
            | Failure::LengthRequired
            | Failure::BodyTooLarge
            | Failure::TargetTooLong
            | Failure::HeadTooLarge
            | Failure::NotImplemented
            | Failure::VersionNotSupported => Some(Cause::BadRequest),
            Failure::Internal => Some(Cause::Internal),
            Failure::BadGateway => Some(Cause::BadGateway),
            Failure::WorkerDied { .. } => Some(Cause::WorkerDied),
            Failure::Unavailable { .. } => Some(Cause::Queue),
            Failure::GatewayTimeout => Some(Cause::Timeout),
            Failure::TooManyRequests { .. } => Some(Cause::Limit),
            Failure::NotFound | Failure::Forbidden | Failure::Misdirected | Failure::NotAcceptable => None,
        }
    }

    /// The complete response.
    pub fn response(self) -> Response<Bytes> {
        let mut response = page(self.status());
        let headers = response.headers_mut();
        match self {
            Failure::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
                // A client of CONNECT expects a tunnel, and sends no more HTTP.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Failure::Unavailable { retry_after } | Failure::TooManyRequests { retry_after } => {
                headers.insert(RETRY_AFTER, retry_after.into());
            }
            Failure::Misdirected => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // The next request could not be distinguished from the rest of this one.
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

impl From<FilesUnavailable> for Failure {
    fn from(error: FilesUnavailable) -> Failure {
        match error {
            FilesUnavailable::Hanging => Failure::GatewayTimeout,
            FilesUnavailable::Busy => Failure::Unavailable { retry_after: FILES_RETRY_AFTER },
            FilesUnavailable::Panicked => Failure::Internal,
        }
    }
}

impl From<HeadRefusal> for Failure {
    fn from(refusal: HeadRefusal) -> Failure {
        match refusal {
            HeadRefusal::Bad(why) => Failure::BadRequest(why),
            HeadRefusal::OtherProtocol => Failure::BadRequest("the protocol"),
            HeadRefusal::Late => Failure::RequestTimeout,
            HeadRefusal::TargetTooLong => Failure::TargetTooLong,
            HeadRefusal::HeadTooLarge => Failure::HeadTooLarge,
            HeadRefusal::Unknown => Failure::NotImplemented,
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
