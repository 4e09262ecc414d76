//! Compression of responses: `settings/http/compression`.
//!
//! [`apply`] checks a response that is ready to be sent: may it be compressed, does the configuration select it, and
//! which of the configured encodings does the client accept? Then the body is compressed while it is sent, and the
//! headers are changed. The modules in the order of a response: `negotiation` (which encoding the client accepts),
//! `memory` (whether there is some for it), `encoder` (the formats), `body` (piece by piece).
//!
//! A response that depends on `Accept-Encoding` has it in `Vary`, compressed or not. A strong validator becomes weak: the
//! compressed response has other bytes (RFC 9110, 8.8.3.3). Parts of files (206) are never compressed.
//!
//! A body that cannot be compressed to its end breaks the connection, so that no client takes it for a complete one.

mod body;
mod compressible;
mod encoder;
mod memory;
mod negotiation;

use crate::resources::counted_memory::CountedMemory;
use crate::response::failure::Failure;
use crate::response::not_modified::NotModified;
use bytes::Bytes;
use howdah_config::{Compression, Compressor, Encoding};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, TRAILER, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use negotiation::Choice;
use std::{io, iter};

pub use body::CompressedBody;
pub use compressible::Compressible;
pub use encoder::Encoder;

/// `Retry-After` of a response that only a compressed form would suit, in seconds.
const WITHOUT_MEMORY_RETRY_AFTER: u32 = 1;

/// A body in memory up to this length is compressed at once, so that its compressed length is known.
const AT_ONCE_BYTES: usize = 64 * 1024;

/// Headers with a checksum of the original bytes, or the promise of one behind them: a response that has one is not
/// compressed.
const CHECKSUMS: [HeaderName; 5] = [
    TRAILER,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Compresses a response if that is configured, allowed and accepted.
///
/// # Errors
/// 406 for a GET or HEAD that accepts neither the plain response nor any of the configured encodings.
pub fn apply<B: Compressible>(
    compression: &Compression,
    request: &Parts,
    mut response: Response<B>,
) -> Result<Response<B>, Failure> {
    if compression.compressors.is_empty() {
        return Ok(response);
    }
    let Some(length) = compressible_length(compression, request, &response) else { return Ok(response) };
    let is_long_enough = |compressor: &&Compressor| length.is_none_or(|length| length >= compressor.min_length);
    let mut candidates = compression.compressors.iter().filter(is_long_enough).copied().peekable();
    if candidates.peek().is_none() {
        return Ok(response);
    }
    add_vary(response.headers_mut());
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    let accepted = || request.headers.get_all(ACCEPT_ENCODING).iter().map(HeaderValue::as_bytes);
    match negotiation::choose(accepted(), candidates) {
        Choice::Identity => Ok(response),
        Choice::Nothing if is_read => Err(Failure::NotAcceptable),
        Choice::Nothing => Ok(response),
        Choice::Encode(encoding) => match response.status() {
            StatusCode::PARTIAL_CONTENT => Ok(response),
            StatusCode::NOT_MODIFIED => {
                weaken(response.headers_mut());
                Ok(response)
            }
            _ => match Form::of(encoding, length, request, response.body()) {
                Some(form) => compress(encoding, form, length, request, response),
                None if is_read && negotiation::choose(accepted(), iter::empty()) == Choice::Nothing => {
                    Err(Failure::Unavailable { retry_after: WITHOUT_MEMORY_RETRY_AFTER })
                }
                None => Ok(response),
            },
        },
    }
}

/// How a body is compressed.
enum Form {
    /// There is no body.
    Head,
    /// Before the head of the response is sent.
    AtOnce,
    /// While it is sent, with this memory.
    Streamed(CountedMemory),
}

// === impl Form ===

impl Form {
    /// `None` if there is no memory for it.
    fn of(encoding: Encoding, length: Option<u64>, request: &Parts, body: &impl Compressible) -> Option<Form> {
        if request.method == Method::HEAD {
            return Some(Form::Head);
        }
        if body.whole().is_some_and(|whole| whole.len() <= AT_ONCE_BYTES) && !encoder::is_slow(encoding) {
            return Some(Form::AtOnce);
        }
        memory::take(encoding, length).map(Form::Streamed)
    }
}

fn compress<B: Compressible>(
    encoding: Encoding,
    form: Form,
    length: Option<u64>,
    request: &Parts,
    response: Response<B>,
) -> Result<Response<B>, Failure> {
    let failed = |error: io::Error| {
        tracing::error!(%error, encoding = encoding.as_str(), "cannot compress a response; answering 500");
        Failure::Internal
    };
    let (mut head, mut body) = response.into_parts();
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding.as_str()));
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(ACCEPT_RANGES);
    weaken(&mut head.headers);
    let encoder = || Encoder::new(encoding, length);
    match (form, body.whole()) {
        (Form::AtOnce, Some(whole)) => {
            let compressed = encoder().and_then(|encoder| encoder.finish_with(whole));
            body = B::of_bytes(compressed.map(Bytes::from).map_err(failed)?);
        }
        (Form::Head | Form::AtOnce, _) => {}
        (Form::Streamed(memory), _) => {
            body = body.compressed_by(encoder().map_err(failed)?, memory);
            if request.version == Version::HTTP_10 {
                // HTTP/1.0 has no chunks: the end of the connection marks the end of the body.
                head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
    }
    Ok(Response::from_parts(head, body))
}

/// `None` if the response must not be compressed. Otherwise its length, if that is known.
fn compressible_length<B: Compressible>(
    compression: &Compression,
    request: &Parts,
    response: &Response<B>,
) -> Option<Option<u64>> {
    let headers = response.headers();
    let (status, not_modified) = (response.status(), response.extensions().get::<NotModified>());
    let (has_content, content_type) = match status {
        StatusCode::NOT_MODIFIED => (false, not_modified?.content_type.as_ref()?),
        _ => (true, headers.get(CONTENT_TYPE)?),
    };
    let is_partial = status == StatusCode::PARTIAL_CONTENT;
    if status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || headers.contains_key(CONTENT_ENCODING)
        || headers.contains_key(CONTENT_RANGE) && !is_partial
        || CHECKSUMS.iter().any(|name| headers.contains_key(name))
        || headers.get_all(CACHE_CONTROL).iter().any(forbids_transformation)
    {
        return None;
    }
    if let Some(types) = &compression.types
        && !types.matches(&essence(content_type))
    {
        return None;
    }
    let declared = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let length = match not_modified {
        Some(not_modified) => Some(not_modified.length),
        // The Content-Length is that of the part, not of the file.
        None if is_partial => None,
        None if request.method == Method::HEAD => declared(),
        None => response.body().size_hint().exact().or_else(declared),
    };
    if has_content && request.method == Method::HEAD && length.is_none() {
        // GET is compressed if its body is long enough. The length is unknown here, so that every length must suffice.
        let any_length_suffices = compression.compressors.iter().all(|compressor| compressor.min_length == 0);
        return any_length_suffices.then_some(None);
    }
    (length != Some(0)).then_some(length)
}

/// The type without its parameters, in lower case.
fn essence(content_type: &HeaderValue) -> Vec<u8> {
    let essence = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

fn forbids_transformation(cache_control: &HeaderValue) -> bool {
    list(cache_control).any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

fn add_vary(headers: &mut HeaderMap) {
    let is_there = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !headers.get_all(VARY).iter().any(|value| list(value).any(is_there)) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

fn weaken(headers: &mut HeaderMap) {
    if let Some(etag) = headers.get_mut(ETAG)
        && !etag.as_bytes().starts_with(b"W/")
        && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat())
    {
        *etag = weak;
    }
}

fn list(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests;
