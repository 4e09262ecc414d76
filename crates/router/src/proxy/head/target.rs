//! The target of a request for an upstream: the client's spelling, or the encoded result of a rewrite.

use crate::request::subject::Subject;
use crate::response::failure::Failure;
use http::uri::PathAndQuery;
use std::fmt::Write as _;

/// Path and query for the upstream. The host of an absolute target (RFC 9112, 3.2.2) is in the header `Host`.
///
/// # Errors
/// 400 if the client sent no path; 500 if a rewrite made a target that exceeds all limits.
pub fn of(subject: &Subject<'_>) -> Result<PathAndQuery, Failure> {
    if !subject.is_rewritten {
        return subject.parts.uri.path_and_query().cloned().ok_or(Failure::BadRequest("the target"));
    }
    encode(subject.path.bytes(), subject.raw_query()).parse().map_err(|error| {
        tracing::error!(%error, "a rewrite made a target that cannot be sent; answering 500");
        Failure::Internal
    })
}

/// Encodes a path whose bytes are all literal, and a query that contains escapes already.
fn encode(path: &[u8], query: &str) -> String {
    let mut target = String::with_capacity(path.len() + query.len() + 16);
    encode_to(&mut target, path, b"%?");
    if !query.is_empty() {
        target.push('?');
        encode_to(&mut target, query.as_bytes(), b"");
    }
    target
}

fn encode_to(out: &mut String, bytes: &[u8], and: &[u8]) {
    for byte in bytes {
        if !byte.is_ascii_graphic() || b"\"#<>\\^`{|}".contains(byte) || and.contains(byte) {
            let _ = write!(out, "%{byte:02X}");
        } else {
            out.push(char::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_allowed_in_a_target_are_encoded() {
        let cases: [(&[u8], &str, &str); 6] = [
            (b"/a/b", "", "/a/b"),
            (b"/a b%?#", "", "/a%20b%25%3F%23"),
            (b"/\xff\r\n", "", "/%FF%0D%0A"),
            ("/\u{e4}".as_bytes(), "a=\u{e4} \r\n&b=%20?#", "/%C3%A4?a=%C3%A4%20%0D%0A&b=%20?%23"),
            (b"/a:@!$&'()*+,;=~", "", "/a:@!$&'()*+,;=~"),
            (b"/", "[]", "/?[]"),
        ];
        for (path, query, expected) in cases {
            let target = encode(path, query);
            assert_eq!(target, expected);
            assert_eq!(target.parse::<PathAndQuery>().expect("target").as_str(), expected);
        }
    }
}
