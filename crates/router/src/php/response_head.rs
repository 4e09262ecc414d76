//! The head of a script's response, as the head of an HTTP response.
//!
//! The framing of the body, and the connection, are howdah's: a script's `Transfer-Encoding`, `Connection` and `Upgrade`
//! are left out, and a wrong `Content-Length` is too. Headers that HTTP does not allow are left out, and logged with one line
//! for the response. A head that HTTP does not allow, or with too many headers, is answered 502.

use crate::php::port::Started;
use crate::response::failure::Failure;
use crate::response::header_case::{self, WrittenNames};
use bytes::Bytes;
use howdah_channel::response::{self, Head};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// The most headers of a response: no browser accepts as many, and the router's memory for one response has a limit.
pub const MAX_HEADERS: usize = 1000;
/// How much of a wrong header's name is logged, in characters.
const NAME_CHARS: usize = 80;

/// The head of the response to this request of this application, and the beginning of the body.
///
/// # Errors
/// 502 for a response that is not one of HTTP.
pub fn read(started: &Started, request: &Parts, application: &str) -> Result<(Response<()>, Bytes), Failure> {
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = status(head.status, application)?;
    let count = head.headers().count();
    if count > MAX_HEADERS {
        tracing::warn!(application, "a script set {count} headers; {MAX_HEADERS} are allowed: answered 502");
        return Err(Failure::BadGateway);
    }
    if !head.reason.is_empty()
        && let Ok(reason) = ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = copy_headers(&head, &mut response, application);
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
fn status(code: u16, application: &str) -> Result<StatusCode, Failure> {
    StatusCode::from_u16(code).ok().filter(|status| !status.is_informational()).ok_or_else(|| {
        tracing::warn!(application, status = code, "a script set a status that no response can end with: answered 502");
        Failure::BadGateway
    })
}

/// Copies the script's headers, except for those that only the server can know. Returns the declared length.
fn copy_headers(head: &Head<'_>, response: &mut Response<()>, application: &str) -> Option<u64> {
    let mut declared = None;
    let mut is_unusual = false;
    let mut wrong = None;
    let headers = response.headers_mut();
    for line in head.headers() {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        is_unusual = is_unusual || !header_case::is_capitalized(name);
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            let (_, count) = wrong.get_or_insert((name, 0));
            *count += 1;
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
    if let Some((name, count)) = wrong {
        let header: String = String::from_utf8_lossy(name).chars().take(NAME_CHARS).collect();
        tracing::warn!(
            application,
            header = &*header,
            count,
            "a script set a header that HTTP does not allow: left out"
        );
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
