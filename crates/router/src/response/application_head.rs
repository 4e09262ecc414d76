//! The status and the headers of an application's response, as those of an HTTP response.
//!
//! The framing of the body, and the connection, are howdah's: an application's `Transfer-Encoding`, `Connection` and
//! `Upgrade` are left out. Headers that HTTP does not allow are left out, and logged with one line for the response. A
//! status that HTTP does not allow, or too many headers, are answered 502.

use crate::response::failure::Failure;
use crate::response::header_case;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Response, StatusCode};

/// The most headers of a response: no browser accepts as many, and the router's memory for one response has a limit.
pub const MAX_HEADERS: usize = 1000;
/// How much of a wrong header's name is logged, in characters.
const NAME_CHARS: usize = 80;

/// An application's status, as that of a final response. A status below 200 announces another response, which never comes.
///
/// # Errors
/// 502 for a status that HTTP does not allow.
pub fn status(code: i64) -> Result<StatusCode, Failure> {
    let status = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    status.filter(|status| !status.is_informational()).ok_or_else(|| {
        tracing::warn!(status = code, "a script set a status that no response can end with: answered 502");
        Failure::BadGateway
    })
}

/// The status and the headers of an application's interim response; `None` for one that HTTP does not allow.
pub fn interim<'f>(
    code: i64,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
) -> Option<(StatusCode, HeaderMap)> {
    let mut response = Response::new(());
    copy_headers(fields, &mut response).ok()?;
    let mut headers = std::mem::take(response.headers_mut());
    headers.remove(CONTENT_LENGTH);
    // They are for the server, in the final response.
    for name in ["x-sendfile", "x-accel-redirect"] {
        headers.remove(name);
    }
    Some((StatusCode::from_u16(u16::try_from(code).ok()?).ok()?, headers))
}

/// Copies an application's headers, except for those that only the server can know. Returns the declared length.
///
/// # Errors
/// 502 for too many headers.
pub fn copy_headers<'f>(
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    response: &mut Response<()>,
) -> Result<Option<u64>, Failure> {
    let count = fields.clone().count();
    if count > MAX_HEADERS {
        tracing::warn!("a script set {count} headers; {MAX_HEADERS} are allowed: answered 502");
        return Err(Failure::BadGateway);
    }
    let mut declared = None;
    let mut unusual = Vec::new();
    let mut wrong = None;
    let headers = response.headers_mut();
    for (written, value) in fields.clone() {
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
        let names = fields.map(|(name, _)| name);
        header_case::keep(response, &unusual, names.filter_map(|name| std::str::from_utf8(name).ok()));
    }
    if let Some((name, count)) = wrong {
        let header: String = String::from_utf8_lossy(name).chars().take(NAME_CHARS).collect();
        tracing::warn!(header = &*header, count, "a script set a header that HTTP does not allow: left out");
    }
    Ok(declared)
}
