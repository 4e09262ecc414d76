//! The target of a request for an upstream: the client's spelling, or the encoded result of a rewrite.

use crate::request::subject::Subject;
use crate::response::failure::Failure;
use http::uri::PathAndQuery;

/// Path and query for the upstream. The host of an absolute target (RFC 9112, 3.2.2) is in the header `Host`.
///
/// # Errors
/// 400 if the client sent no path; 500 if a rewrite made a target that exceeds all limits.
pub fn of(subject: &Subject<'_>) -> Result<PathAndQuery, Failure> {
    if !subject.is_rewritten {
        return subject.parts.uri.path_and_query().cloned().ok_or(Failure::BadRequest("the target"));
    }
    subject.target().parse().map_err(|error| {
        tracing::error!(%error, "a rewrite made a target that cannot be sent; answering 500");
        Failure::Internal
    })
}
