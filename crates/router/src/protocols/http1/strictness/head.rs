//! The head of a request: where it ends, and how the body that follows is framed (RFC 9112, 2 to 6).
//!
//! The scanner checks the framing, and those parts of the target that hyper drops. hyper reads the same bytes afterwards,
//! and checks everything else, such as the characters of names and values. The scanner is called again when more bytes
//! have arrived, and continues where it stopped.

use crate::protocols::connection::heads::refusal::HeadRefusal;
use crate::protocols::connection::limits::MAX_HEAD_BYTES;
use memchr::memchr;

/// The state of the scan of one head.
#[derive(Debug, Default)]
pub struct HeadScanner {
    /// How many bytes were searched for line ends.
    searched: usize,
    /// The beginning of the line whose end has not arrived yet.
    line_start: usize,
    /// How many bytes of the request line are known to belong to its method. Each byte may arrive alone.
    method: usize,
    /// Whether the request line has begun: there may be empty lines before it.
    has_begun: bool,
    /// The version in the request line, once that is complete.
    version: Option<HttpVersion>,
    length: Option<u64>,
    is_chunked: bool,
    requests_upgrade: bool,
    /// Where the query has bytes that no URI has, counted from the beginning of the head.
    raw_bytes: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpVersion {
    Http10,
    Http11,
}

/// A complete head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedHead {
    /// Its length in bytes, with the empty line at its end and empty lines before it.
    pub length: usize,
    /// The framing of the body.
    pub body: Framing,
    /// The request asks for another protocol, which may begin after the body.
    pub requests_upgrade: bool,
    /// Where the query has bytes that no URI has, and that hyper would refuse: the caller encodes them. Counted from
    /// the beginning of the head.
    pub raw_bytes: Vec<usize>,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This number of bytes; 0 without a Content-Length.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A program behind howdah may fail to parse a larger number.
const MAX_LENGTH: u64 = i64::MAX as u64;
/// The beginning of a TLS record with a handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: &[u8] = &[0x16, 0x03];

// === impl HeadScanner ===

impl HeadScanner {
    /// Scans the bytes of a head that have arrived, from its first byte. Returns `None` if the head is not complete.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Option<ScannedHead>, HeadRefusal> {
        while let Some(found) = memchr(b'\n', &bytes[self.searched..]) {
            let line_end = self.searched + found;
            let line = &bytes[self.line_start..line_end];
            let line = line.strip_suffix(b"\r").ok_or(HeadRefusal::Bad("a line ends with a bare LF"))?;
            self.searched = line_end + 1;
            self.line_start = self.searched;
            // An encoded byte becomes three.
            if self.searched + 2 * self.raw_bytes.len() > MAX_HEAD_BYTES {
                return Err(self.too_long());
            }
            match (self.version, line) {
                // RFC 9112, 2.2: some clients send an empty line after a body.
                (None, b"") => {}
                (None, line) => {
                    self.version = Some(request_line(line)?);
                    let line_start = line_end + 1 - line.len() - "\r\n".len();
                    self.raw_bytes = raw_bytes(line).into_iter().map(|at| line_start + at).collect();
                }
                (Some(version), b"") => {
                    let body = self.framing(version)?;
                    return Ok(Some(ScannedHead {
                        length: self.searched,
                        body,
                        requests_upgrade: self.requests_upgrade,
                        raw_bytes: std::mem::take(&mut self.raw_bytes),
                    }));
                }
                (Some(_), line) => self.header(line)?,
            }
        }
        self.searched = bytes.len();
        if self.version.is_none() {
            // A client of another protocol may never send a line end.
            let line = &bytes[self.line_start..];
            self.has_begun = line.first().is_some_and(|byte| !byte.is_ascii_whitespace());
            self.method = unfinished_request_line(line, self.method)?;
        }
        if bytes.len() >= MAX_HEAD_BYTES { Err(self.too_long()) } else { Ok(None) }
    }

    /// Whether more than empty lines has arrived.
    pub fn has_begun(&self) -> bool {
        self.version.is_some() || self.has_begun
    }

    /// Whether no byte of the head has arrived.
    pub fn has_seen_nothing(&self) -> bool {
        self.searched == 0
    }

    fn too_long(&self) -> HeadRefusal {
        if self.version.is_none() { HeadRefusal::TargetTooLong } else { HeadRefusal::HeadTooLarge }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), HeadRefusal> {
        if matches!(line[0], b' ' | b'\t') {
            return Err(HeadRefusal::Bad("a header goes on in the next line"));
        }
        let Some(colon) = memchr(b':', line) else { return Err(HeadRefusal::Bad("a header without a colon")) };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return Err(HeadRefusal::Bad("more than one Content-Length"));
            }
            self.length = Some(length(trim(value)).ok_or(HeadRefusal::Bad("Content-Length"))?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked {
                return Err(HeadRefusal::Bad("more than one Transfer-Encoding"));
            }
            transfer_encoding(trim(value))?;
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.requests_upgrade = true;
        }
        Ok(())
    }

    fn framing(&self, version: HttpVersion) -> Result<Framing, HeadRefusal> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err(HeadRefusal::Bad("Transfer-Encoding beside Content-Length")),
            (true, None) if version == HttpVersion::Http10 => Err(HeadRefusal::Bad("Transfer-Encoding in HTTP/1.0")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

fn request_line(line: &[u8]) -> Result<HttpVersion, HeadRefusal> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(_), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(HeadRefusal::Bad(
            "a request line has a method, a target and a version, with one space between them",
        ));
    };
    // RFC 9112, 3.2: a target has no fragment. hyper would cut it off.
    if memchr(b'#', target).is_some() {
        return Err(HeadRefusal::Bad("the target has a fragment"));
    }
    match version {
        b"HTTP/1.1" => Ok(HttpVersion::Http11),
        b"HTTP/1.0" => Ok(HttpVersion::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Err(HeadRefusal::Version)
        }
        version if version.starts_with(b"HTTP/") => Err(HeadRefusal::Bad("the version")),
        _ => Err(HeadRefusal::OtherProtocol),
    }
}

/// Where the query of a request line has bytes that no URI has, but that curl and old clients send there unchanged:
/// `"`, `<`, `>`, and bytes that are not UTF-8. In a path they are refused, because a path decides which file or script
/// is meant.
fn raw_bytes(line: &[u8]) -> Vec<usize> {
    let Some(query) = memchr(b'?', line).map(|mark| mark + 1) else { return Vec::new() };
    let end = query + memchr(b' ', &line[query..]).unwrap_or(line.len() - query);
    let is_utf8 = std::str::from_utf8(&line[query..end]).is_ok();
    let is_raw = |byte: u8| matches!(byte, b'"' | b'<' | b'>') || !byte.is_ascii() && !is_utf8;
    (query..end).filter(|at| is_raw(line[*at])).collect()
}

/// Checks the method in the beginning of a request line, of which this number of bytes are known to be right. Returns how
/// many are now.
fn unfinished_request_line(bytes: &[u8], known: usize) -> Result<usize, HeadRefusal> {
    if bytes.starts_with(TLS_HANDSHAKE) {
        return Err(HeadRefusal::Bad("TLS handshake on a plain HTTP port"));
    }
    let known = known.min(bytes.len());
    let other = bytes[known..].iter().position(|byte| !is_token_byte(*byte)).map_or(bytes.len(), |other| known + other);
    match &bytes[other..] {
        // The line may end here: an empty line before the request.
        [] | [b' ', ..] | [b'\r'] => Ok(other),
        _ => Err(HeadRefusal::Bad("the method")),
    }
}

/// RFC 9112, 6.1 and 6.3: only `chunked` is supported.
fn transfer_encoding(value: &[u8]) -> Result<(), HeadRefusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let is_chunked = |coding: &[u8]| trim(coding).eq_ignore_ascii_case(b"chunked");
    let mut codings = value.split(|byte| *byte == b',').rev();
    let last_alone = codings.next().is_some_and(is_chunked) && !codings.any(is_chunked);
    // The end of the body is certain only if the last coding, and no other, is `chunked`.
    Err(if last_alone { HeadRefusal::Unknown } else { HeadRefusal::Bad("Transfer-Encoding") })
}

fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok().filter(|length| *length <= MAX_LENGTH)
}

/// Removes the spaces that may surround a value (RFC 9110, 5.6.3).
fn trim(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Framing = Framing::Length(0);

    /// Scans a head at once and byte by byte, and checks that the results are equal.
    fn scan(bytes: &[u8]) -> Result<Option<ScannedHead>, HeadRefusal> {
        let at_once = HeadScanner::default().scan(bytes);
        let mut scanner = HeadScanner::default();
        let mut slowly = Ok(None);
        for length in 1..=bytes.len() {
            slowly = scanner.scan(&bytes[..length]);
            if slowly != Ok(None) {
                break;
            }
        }
        assert_eq!(at_once, slowly, "{}", bytes.escape_ascii());
        at_once
    }

    fn with_headers(headers: &str) -> Result<Framing, HeadRefusal> {
        let head = format!("POST /a?b HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        scan(head.as_bytes()).map(|scanned| {
            let scanned = scanned.expect("a complete head");
            assert_eq!(scanned.length, head.len());
            scanned.body
        })
    }

    #[test]
    fn a_request_without_certain_framing_is_refused() {
        let bad = |problem| Err(HeadRefusal::Bad(problem));
        let both = "Transfer-Encoding beside Content-Length";
        let table: &[(&str, Result<Framing, HeadRefusal>)] = &[
            ("", Ok(NONE)),
            ("Content-Length: 5\r\n", Ok(Framing::Length(5))),
            ("content-LENGTH:5\r\n", Ok(Framing::Length(5))),
            ("Content-Length:\t 0005 \t\r\n", Ok(Framing::Length(5))),
            ("Content-Length: 9223372036854775807\r\n", Ok(Framing::Length(i64::MAX as u64))),
            ("Content-Length: 9223372036854775808\r\n", bad("Content-Length")),
            ("Content-Length: 99999999999999999999999\r\n", bad("Content-Length")),
            ("Content-Length:\r\n", bad("Content-Length")),
            ("Content-Length: +5\r\n", bad("Content-Length")),
            ("Content-Length: -5\r\n", bad("Content-Length")),
            ("Content-Length: 0x5\r\n", bad("Content-Length")),
            ("Content-Length: 5, 5\r\n", bad("Content-Length")),
            ("Content-Length: 5 5\r\n", bad("Content-Length")),
            ("Content-Length: \x0b5\r\n", bad("Content-Length")),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", bad("more than one Content-Length")),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", bad("more than one Content-Length")),
            ("Transfer-Encoding: chunked\r\n", Ok(Framing::Chunked)),
            ("TRANSFER-encoding:  Chunked\t\r\n", Ok(Framing::Chunked)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", bad(both)),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", bad(both)),
            ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", bad(both)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", bad("more than one Transfer-Encoding")),
            ("Transfer-Encoding: chunked, chunked\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: chunked, identity\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: identity\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: identity, chunked\r\n", Err(HeadRefusal::Unknown)),
            ("Transfer-Encoding: gzip\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(HeadRefusal::Unknown)),
            ("Transfer-Encoding: chunked, gzip\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: xchunked\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: \"chunked\"\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: \x0bchunked\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding: chunked;q=1\r\n", bad("Transfer-Encoding")),
            ("Transfer-Encoding:\r\n", bad("Transfer-Encoding")),
            ("X: 1\r\n 2\r\n", bad("a header goes on in the next line")),
            (" X: 1\r\n", bad("a header goes on in the next line")),
            ("Content-Length: 5\r\n\t6\r\n", bad("a header goes on in the next line")),
            ("X: 1\nContent-Length: 5\r\n", bad("a line ends with a bare LF")),
            ("X: 1\r\n\nContent-Length: 5\r\n", bad("a line ends with a bare LF")),
            ("nonsense\r\n", bad("a header without a colon")),
            // hyper checks other names and values.
            ("Content-Length : 5\r\n", Ok(NONE)),
            ("X-Content-Length: 5\r\n", Ok(NONE)),
        ];
        for (headers, expected) in table {
            assert_eq!(with_headers(headers), *expected, "{headers:?}");
        }
    }

    #[test]
    fn a_request_line_has_three_parts() {
        let bad = HeadRefusal::Bad("a request line has a method, a target and a version, with one space between them");
        let table: &[(&[u8], Option<HeadRefusal>)] = &[
            (b"GET / HTTP/1.1\r\n\r\n", None),
            (b"GET / HTTP/1.0\r\n\r\n", None),
            (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", None),
            (b"get * HTTP/1.1\r\n\r\n", None),
            (b"GET  / HTTP/1.1\r\n\r\n", Some(bad)),
            (b"GET / HTTP/1.1 \r\n\r\n", Some(bad)),
            (b"GET / x HTTP/1.1\r\n\r\n", Some(bad)),
            (b"GET /\r\n\r\n", Some(bad)),
            (b"GET\r\n\r\n", Some(bad)),
            (b" GET / HTTP/1.1\r\n\r\n", Some(bad)),
            (b"GET / HTTP/1.2\r\n\r\n", Some(HeadRefusal::Version)),
            (b"GET / HTTP/9.9\r\n\r\n", Some(HeadRefusal::Version)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(HeadRefusal::Version)),
            (b"GET / HTTP/0.9\r\n\r\n", Some(HeadRefusal::Version)),
            (b"GET / HTTP/11\r\n\r\n", Some(HeadRefusal::Bad("the version"))),
            (b"GET / http/1.1\r\n\r\n", Some(HeadRefusal::OtherProtocol)),
            (b"GET / ICY/1.1\r\n\r\n", Some(HeadRefusal::OtherProtocol)),
            (b"GET / HTTP/1.1x\r\n\r\n", Some(HeadRefusal::Bad("the version"))),
            (b"GET /#a HTTP/1.1\r\n\r\n", Some(HeadRefusal::Bad("the target has a fragment"))),
            (b"GET /a?b#c HTTP/1.1\r\n\r\n", Some(HeadRefusal::Bad("the target has a fragment"))),
            (b"GET / HTTP/1.1\n\n", Some(HeadRefusal::Bad("a line ends with a bare LF"))),
            (b"\nGET / HTTP/1.1\r\n\r\n", Some(HeadRefusal::Bad("a line ends with a bare LF"))),
            (b"\x16\x03\x01\x00\xa5\x01", Some(HeadRefusal::Bad("TLS handshake on a plain HTTP port"))),
            (b"G\0T / HTTP/1.1", Some(HeadRefusal::Bad("the method"))),
        ];
        for (head, expected) in table {
            let scanned = HeadScanner::default().scan(head);
            assert_eq!(scanned.err(), *expected, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn bytes_of_a_query_that_no_uri_has_are_found() {
        let table: &[(&[u8], &[usize])] = &[
            (b"GET /?a=\"b\" HTTP/1.1\r\n\r\n", &[8, 10]),
            (b"\r\nGET /?<> HTTP/1.1\r\n\r\n", &[8, 9]),
            (b"GET /?a=\xfc\" HTTP/1.1\r\n\r\n", &[8, 9]),
            (b"GET /?a=\xc3\xbc HTTP/1.1\r\n\r\n", &[]),
            (b"GET /?a HTTP/1.1\r\nX: ?\"\r\n\r\n", &[]),
            (b"GET /\"<> HTTP/1.1\r\n\r\n", &[]),
        ];
        for (head, expected) in table {
            let scanned = scan(head).expect("a head").expect("a complete head");
            assert_eq!(scanned.raw_bytes, *expected, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn an_unfinished_head_is_waited_for() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for length in 0..head.len() {
            assert_eq!(scan(&head[..length]), Ok(None), "{length}");
        }
        assert_eq!(
            scan(head),
            Ok(Some(ScannedHead { length: head.len(), body: NONE, requests_upgrade: false, raw_bytes: Vec::new() }))
        );
        let followed = [&head[..], b"POST"].concat();
        assert_eq!(
            HeadScanner::default().scan(&followed),
            Ok(Some(ScannedHead { length: head.len(), body: NONE, requests_upgrade: false, raw_bytes: Vec::new() }))
        );
    }

    #[test]
    fn a_head_has_a_limit() {
        let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "x".repeat(length));
        let header = |length: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(length));
        assert_eq!(HeadScanner::default().scan(line(MAX_HEAD_BYTES).as_bytes()), Err(HeadRefusal::TargetTooLong));
        assert_eq!(HeadScanner::default().scan(line(MAX_HEAD_BYTES - 100).as_bytes()), Ok(None));
        let longest = MAX_HEAD_BYTES - header(0).len();
        let scanned = HeadScanner::default().scan(header(longest).as_bytes());
        assert_eq!(
            scanned,
            Ok(Some(ScannedHead {
                length: MAX_HEAD_BYTES,
                body: NONE,
                requests_upgrade: false,
                raw_bytes: Vec::new()
            }))
        );
        assert_eq!(HeadScanner::default().scan(header(longest + 1).as_bytes()), Err(HeadRefusal::HeadTooLarge));
        let unfinished = header(longest + 1);
        let unfinished = &unfinished.as_bytes()[..MAX_HEAD_BYTES];
        assert_eq!(HeadScanner::default().scan(unfinished), Err(HeadRefusal::HeadTooLarge));
    }
}
