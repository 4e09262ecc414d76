//! The format of a response in a slot's ring: its head, then its body to the end. Heads of interim responses (1xx) may come
//! before it; their status has the bit [`INTERIM`].
//!
//! ```text
//! length u32 | status u16 | reason length u16 | reason | header …      header: length u32 | "Name: value"
//! ```
//!
//! `length` counts what follows it up to the body. Little endian. The router parses it as hostile input.

use crate::violation::Violation;

/// The longest head that the router accepts: a megabyte of headers.
pub const HEAD_LIMIT: usize = 1024 * 1024;

/// The bit in the status of an interim response (RFC 9110, 15.2): another head follows. Without it, a body follows, whatever
/// status the script has set.
pub const INTERIM: u16 = 0x8000;

/// Collects the head of a response. Reused from one request to the next.
#[derive(Debug, Default)]
pub struct ResponseHeadWriter {
    bytes: Vec<u8>,
}

/// The head of a response, as its worker wrote it: lengths are checked, names and values are not.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'b> {
    /// The status code.
    pub status: u16,
    /// Whether another head follows.
    pub is_interim: bool,
    /// The reason phrase; empty for the usual one.
    pub reason: &'b [u8],
    headers: &'b [u8],
}

// === impl ResponseHeadWriter ===

impl ResponseHeadWriter {
    /// Begins a head.
    pub fn restart(&mut self, status: u16, reason: &[u8]) {
        let reason = &reason[..reason.len().min(512)];
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&status.to_le_bytes());
        self.bytes.extend_from_slice(&(reason.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(reason);
    }

    /// Adds a header line, `Name: value`.
    pub fn header(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(&(line.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(line);
    }

    /// The head, to be written before the body.
    pub fn finish(&mut self) -> &[u8] {
        let len = (self.bytes.len() - 4) as u32;
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        &self.bytes
    }
}

/// Finds the head at the beginning of what a worker wrote. `Ok(None)`: more must arrive first. Otherwise the head, and
/// where the body begins.
///
/// # Errors
/// When a length is impossible or beyond [`HEAD_LIMIT`].
pub fn parse(bytes: &[u8]) -> Result<Option<(Head<'_>, usize)>, Violation> {
    let Some(len) = bytes.first_chunk() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if !(4..=HEAD_LIMIT).contains(&len) {
        return Err(Violation("the length of a response's head is impossible"));
    }
    let Some(head) = bytes.get(4..4 + len) else { return Ok(None) };
    let status = u16::from_le_bytes([head[0], head[1]]);
    let reason_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let reason = head.get(4..4 + reason_len).ok_or(Violation("a response's reason phrase leaves its head"))?;
    let headers = &head[4 + reason_len..];
    let mut rest = headers;
    while !rest.is_empty() {
        rest = split_header(rest).ok_or(Violation("a response's header leaves its head"))?.1;
    }
    let is_interim = status & INTERIM != 0;
    Ok(Some((Head { status: status & !INTERIM, is_interim, reason, headers }, 4 + len)))
}

// === impl Head ===

impl<'b> Head<'b> {
    /// The header lines.
    pub fn headers(&self) -> impl Iterator<Item = &'b [u8]> + Clone {
        let mut rest = self.headers;
        std::iter::from_fn(move || {
            let (line, after) = split_header(rest)?;
            rest = after;
            Some(line)
        })
    }
}

fn split_header(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    bytes[4..].split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_as_it_was_written() {
        let mut writer = ResponseHeadWriter::default();
        writer.restart(404, b"Nowhere");
        writer.header(b"Content-Type: text/html");
        writer.header(b"X-Empty:");
        let mut bytes = writer.finish().to_vec();
        let body_at = bytes.len();
        bytes.extend_from_slice(b"body");
        let (head, body) = parse(&bytes).unwrap().unwrap();
        assert_eq!((head.status, head.reason, body), (404, &b"Nowhere"[..], body_at));
        assert_eq!(head.headers().collect::<Vec<_>>(), [&b"Content-Type: text/html"[..], b"X-Empty:"]);
        assert!(!head.is_interim);
        for cut in 0..body_at {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn an_interim_head_comes_before_another() {
        let mut writer = ResponseHeadWriter::default();
        writer.restart(103 | INTERIM, b"");
        writer.header(b"Link: </a.css>");
        let mut bytes = writer.finish().to_vec();
        writer.restart(103, b"");
        bytes.extend_from_slice(writer.finish());
        let (first, end) = parse(&bytes).unwrap().unwrap();
        assert_eq!((first.status, first.is_interim, first.headers().count()), (103, true, 1));
        let (second, _) = parse(&bytes[end..]).unwrap().unwrap();
        assert_eq!((second.status, second.is_interim), (103, false));
    }

    #[test]
    fn impossible_lengths_are_violations() {
        let length = "the length of a response's head is impossible";
        let reason = "a response's reason phrase leaves its head";
        let header = "a response's header leaves its head";
        assert_eq!(parse(&[3, 0, 0, 0, 0, 0, 0]), Err(Violation(length)));
        assert_eq!(parse(&u32::MAX.to_le_bytes()), Err(Violation(length)));
        assert_eq!(parse(&[4, 0, 0, 0, 200, 0, 1, 0]), Err(Violation(reason)));
        assert_eq!(parse(&[9, 0, 0, 0, 200, 0, 0, 0, 9, 0, 0, 0, b'x']), Err(Violation(header)));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(0u8.., 0..200)) {
            if let Ok(Some((head, body))) = parse(&bytes) {
                proptest::prop_assert!(body <= bytes.len());
                head.headers().for_each(drop);
            }
        }
    }
}
