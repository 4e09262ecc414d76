//! The head of a script's response, as the head of an HTTP response.
//!
//! The framing of the body is howdah's: a wrong `Content-Length` is left out. A head that HTTP does not allow is answered
//! 502.

use crate::backends::php::port::Started;
use crate::response::application_head;
use crate::response::failure::Failure;
use bytes::Bytes;
use howdah_channel::response::{self, Head};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

/// The head of the response to this request, and the beginning of the body.
///
/// # Errors
/// 502 for a response that is not one of HTTP.
pub fn read(started: &Started, request: &Parts) -> Result<(Response<()>, Bytes), Failure> {
    let (head, at) = response::parse(&started.bytes).ok().flatten().ok_or(Failure::BadGateway)?;
    let mut response = Response::new(());
    *response.status_mut() = application_head::status(head.status.into())?;
    if !head.reason.is_empty()
        && let Ok(reason) = ReasonPhrase::try_from(head.reason)
    {
        response.extensions_mut().insert(reason);
    }
    let declared = application_head::copy_headers(fields(&head), &mut response)?;
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

/// The status and the headers of an interim response; `None` for one that HTTP does not allow.
pub fn read_interim(head: &Head<'_>) -> Option<(StatusCode, HeaderMap)> {
    application_head::interim(head.status.into(), fields(head))
}

fn fields<'b>(head: &Head<'b>) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + Clone {
    head.headers().filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
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
