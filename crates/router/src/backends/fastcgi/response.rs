//! The answer of a FastCGI server as an HTTP response.

use crate::backends::buffering::spooled_body::{SpooledBody, with_body};
use crate::backends::buffering::start::StartedAnswer;
use crate::response::application_head;
use crate::response::failure::{Answer, Failure};
use bytes::Bytes;
use howdah_fastcgi::head;
use http::Response;
use http::request::Parts;
use hyper::ext::ReasonPhrase;

/// The response to this request.
///
/// # Errors
/// 502 for a status that HTTP does not allow, and for too many headers.
pub fn of(started: StartedAnswer<Bytes>, request: &Parts) -> Answer<SpooledBody> {
    let StartedAnswer { head, length, body } = started;
    // It was checked when it came.
    let Ok(Some((head, _))) = head::parse(&head, head.len()) else { return Err(Failure::BadGateway) };
    let mut response = Response::new(());
    *response.status_mut() = application_head::status(head.status.into())?;
    if !head.reason.is_empty()
        && let Ok(reason) = ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = application_head::copy_headers(head.fields(), &mut response)?;
    Ok(with_body(response, declared, length, body, request))
}
