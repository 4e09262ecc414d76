//! The head of a script's response, as the head of an HTTP response.
//!
//! The framing of the body, and the connection, are howdah's: a script's `Transfer-Encoding`, `Connection` and
//! `Upgrade` are left out, and a wrong `Content-Length` is too. Headers that HTTP does not allow are left out, and
//! logged with one line for the response. A head that HTTP does not allow, or with too many headers, is answered 502.

use crate::php::port::Started;
use crate::response::failure::Failure;
use crate::response::header_case;
use bytes::Bytes;
use howdah_channel::response::{self, Head};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// The most headers of a response: no browser accepts as many, and the router's memory for one response has a limit.
pub const MAX_HEADERS: usize = 1000;
/// How much of a wrong header's name is logged, in characters.
const NAME_CHARS: usize = 80;

/// The head of the response to this request, and the beginning of the body.
///
/// # Errors
/// 502 for a response that is not one of HTTP.
pub fn read(started: &Started, request: &Parts) -> Result<(Response<()>, Bytes), Failure> {
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = status(head.status)?;
    let count = head.headers().count();
    if count > MAX_HEADERS {
        tracing::warn!("a script set {count} headers; {MAX_HEADERS} are allowed: answered 502");
        return Err(Failure::BadGateway);
    }
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
    let mut unusual = Vec::new();
    let mut wrong = None;
    let headers = response.headers_mut();
    for line in head.headers() {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (written, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(written), HeaderValue::from_bytes(value)) else {
            let (_, count) = wrong.get_or_insert((written, 0));
            *count += 1;
            continue;
        };
        if !header_case::is_capitalized(written) {
            unusual.extend(std::str::from_utf8(written));
        }
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
    if !unusual.is_empty() {
        let names = head.headers().filter_map(|line| line.split(|byte| *byte == b':').next());
        header_case::keep(response, &unusual, names.filter_map(|name| std::str::from_utf8(name).ok()));
    }
    if let Some((name, count)) = wrong {
        let header: String = String::from_utf8_lossy(name).chars().take(NAME_CHARS).collect();
        tracing::warn!(header = &*header, count, "a script set a header that HTTP does not allow: left out");
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_channel::response::ResponseHeadWriter;
    use http::Request;

    fn started(lines: &[&str]) -> Started {
        let mut writer = ResponseHeadWriter::default();
        writer.restart(200, b"");
        lines.iter().for_each(|line| writer.header(line.as_bytes()));
        Started { bytes: Bytes::copy_from_slice(writer.finish()), complete: true }
    }

    /// `cargo test --release -p howdah-router --lib -- --ignored --nocapture time_of_a_head`
    #[test]
    #[ignore = "a measurement"]
    fn time_of_a_head() {
        const ROUNDS: u32 = 1_000_000;
        let (request, ()) = Request::new(()).into_parts();
        for content_type in ["Content-Type", "Content-type"] {
            let content_type = format!("{content_type}: text/html; charset=UTF-8");
            let started = started(&[
                "X-Powered-By: PHP/8.2.29",
                "Expires: Wed, 11 Jan 1984 05:00:00 GMT",
                "Cache-Control: no-cache, must-revalidate, max-age=0, no-store, private",
                "Set-Cookie: session=0123456789abcdef0123456789abcdef; path=/; HttpOnly",
                "Link: <http://localhost/wp-json/>; rel=\"https://api.w.org/\"",
                &content_type,
            ]);
            let begin = std::time::Instant::now();
            for _ in 0..ROUNDS {
                assert!(std::hint::black_box(read(&started, &request)).is_ok());
            }
            println!("{:?} for a head with {content_type}", begin.elapsed() / ROUNDS);
        }
    }
}
