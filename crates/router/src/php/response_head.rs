//! The head of a script's response, as the head of an HTTP response.
//!
//! The framing of the body, and the connection, are howdah's: a script's `Transfer-Encoding`, `Connection` and `Upgrade`
//! are left out, and a wrong `Content-Length` is too. A head that HTTP does not allow is answered 502.

use crate::php::port::Started;
use crate::response::failure::Failure;
use crate::response::header_case::{self, WrittenNames};
use bytes::Bytes;
use howdah_channel::response::{self, Head};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// The head of the response to this request, and the beginning of the body.
///
/// # Errors
/// 502 for a response that is not one of HTTP.
pub fn read(started: &Started, request: &Parts) -> Result<(Response<()>, Bytes), Failure> {
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = status(head.status)?;
    if !head.reason.is_empty()
        && let Ok(reason) = ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = copy_headers(&head, &mut response);
    let first = started.bytes.slice(at..);
    if !started.complete {
        if request.version == Version::HTTP_10 && !response.headers().contains_key(CONTENT_LENGTH) {
            // Without chunks, only the end of the connection marks the end of the body. hyper would keep the connection.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    } else if request.method != Method::HEAD && declared.is_some_and(|declared| declared != first.len() as u64) {
        // The script wrote another length than it declared: the real one keeps the connection's framing intact.
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok((response, first))
}

/// A script's status, as that of a final response. A status below 200 announces another response, which never comes.
fn status(code: u16) -> Result<StatusCode, Failure> {
    StatusCode::from_u16(code).ok().filter(|status| !status.is_informational()).ok_or_else(|| {
        tracing::warn!(status = code, "a script set a status that no response can end with: answered 502");
        Failure::BadGateway
    })
}

/// Copies the script's headers, except for those that only the server can know. Returns the declared length.
fn copy_headers(head: &Head<'_>, response: &mut Response<()>) -> Option<u64> {
    let mut declared = None;
    let mut is_unusual = false;
    let headers = response.headers_mut();
    for line in head.headers() {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        is_unusual = is_unusual || !header_case::is_capitalized(name);
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            tracing::warn!(header = %String::from_utf8_lossy(name), "a script set a header that HTTP does not allow: left out");
            continue;
        };
        match name {
            // Framing is howdah's.
            TRANSFER_ENCODING | CONNECTION | UPGRADE => {}
            CONTENT_LENGTH => {
                declared = value.to_str().ok().and_then(|text| text.parse().ok());
                if declared.is_some() {
                    headers.insert(CONTENT_LENGTH, value);
                }
            }
            // hyper adds a Date unless the script has set its own.
            DATE => {
                headers.insert(DATE, value);
            }
            name => {
                headers.append(name, value);
            }
        }
    }
    if is_unusual {
        let written = written_names(head, headers);
        response.extensions_mut().insert(written);
    }
    declared
}

/// The names of these headers as the script wrote them.
fn written_names(head: &Head<'_>, headers: &HeaderMap) -> WrittenNames {
    let mut written = WrittenNames::default();
    let names = head.headers().filter_map(|line| std::str::from_utf8(line.split(|byte| *byte == b':').next()?).ok());
    names.filter(|name| headers.contains_key(*name)).for_each(|name| written.add(name));
    written
}
