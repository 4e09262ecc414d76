//! The answer of a worker as an HTTP response.

use crate::backends::buffering::spooled_body::{SpooledBody, with_body};
use crate::backends::buffering::start::StartedAnswer;
use crate::response::application_head;
use crate::response::failure::Answer;
use howdah_goridge::response::ResponseContext;
use http::Response;
use http::request::Parts;

/// The response to this request.
///
/// # Errors
/// 502 for a status that HTTP does not allow, and for too many headers.
pub fn of(started: StartedAnswer<ResponseContext>, request: &Parts) -> Answer<SpooledBody> {
    let StartedAnswer { head, length, body } = started;
    let mut response = Response::new(());
    *response.status_mut() = application_head::status(head.status)?;
    let declared = application_head::copy_headers(head.headers.fields(), &mut response)?;
    Ok(with_body(response, declared, length, body, request))
}
