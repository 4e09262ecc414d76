//! A parser of HTTP/1.1 responses. It is fed with the bytes as they arrive, and does no I/O.
//!
//! The end of a body is its Content-Length, its last chunk, or the end of the connection. Interim responses (1xx) are
//! skipped. Bytes that are not HTTP are [`Malformed`].

use super::target::Checks;

/// The response is not HTTP, or its framing is contradictory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// One response that is being received.
#[derive(Debug, Default)]
pub struct Response {
    phase: Phase,
    /// The beginning of a head, or of a chunk's line, that has not arrived completely.
    partial: Vec<u8>,
    status: u16,
    closes: bool,
    has_right_headers: bool,
    body: Vec<u8>,
    body_length: u64,
    cookies: Vec<String>,
    has_begun: bool,
}

/// How to read a response.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The checks of its header fields, and whether the body is kept.
    pub checks: &'a Checks,
    /// A response to HEAD has no body.
    pub is_head: bool,
    /// Whether `Set-Cookie` is kept.
    pub keeps_cookies: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Head,
    /// Bytes of the body that are missing.
    Length(u64),
    UntilClose,
    ChunkSize,
    /// Bytes of the chunk that are missing, its line end included.
    Chunk(u64),
    Trailers,
    Done,
}

/// The longest head, and the longest line of a chunk.
const MAX_HEAD: usize = 256 * 1024;
const MAX_HEADERS: usize = 128;
/// A body that is checked is kept up to this length.
const MAX_KEPT: usize = 16 * 1024 * 1024;

// === impl Response ===

impl Response {
    /// Prepares for the next response; buffers keep their memory.
    pub fn reset(&mut self) {
        self.phase = Phase::Head;
        self.partial.clear();
        self.body.clear();
        self.body_length = 0;
        self.cookies.clear();
        self.has_begun = false;
        self.closes = false;
    }

    /// Takes in bytes. Returns whether the response is complete.
    ///
    /// # Errors
    /// The bytes are not a response, or more than one.
    pub fn feed(&mut self, bytes: &[u8], reading: Reading) -> Result<bool, Malformed> {
        self.has_begun |= !bytes.is_empty();
        let mut rest = bytes;
        loop {
            let used = match self.phase {
                Phase::Head => self.feed_head(rest, reading)?,
                Phase::Length(missing) => {
                    let used = rest.len().min(missing as usize);
                    self.keep(&rest[..used], reading.checks);
                    self.phase =
                        if used as u64 == missing { Phase::Done } else { Phase::Length(missing - used as u64) };
                    used
                }
                Phase::UntilClose => {
                    self.keep(rest, reading.checks);
                    rest.len()
                }
                Phase::ChunkSize => self.feed_chunk_size(rest)?,
                Phase::Chunk(missing) => {
                    let used = rest.len().min(missing as usize);
                    // The last two bytes are the line end.
                    let content = (missing.saturating_sub(2) as usize).min(used);
                    self.keep(&rest[..content], reading.checks);
                    self.check_line_end(&rest[content..used], missing - content as u64)?;
                    self.phase =
                        if used as u64 == missing { Phase::ChunkSize } else { Phase::Chunk(missing - used as u64) };
                    used
                }
                Phase::Trailers => self.feed_trailers(rest)?,
                Phase::Done => return if rest.is_empty() { Ok(true) } else { Err(Malformed) },
            };
            rest = &rest[used..];
            if rest.is_empty() && self.phase != Phase::Done {
                return Ok(false);
            }
        }
    }

    /// The connection has ended. Returns whether the response is complete by that.
    pub fn end_of_connection(&mut self) -> bool {
        if self.phase == Phase::UntilClose {
            self.phase = Phase::Done;
        }
        self.phase == Phase::Done
    }

    /// Whether a byte has arrived.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The status; 0 before the head is complete.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the server closes the connection after this response.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Whether the header fields passed the checks.
    pub fn has_right_headers(&self) -> bool {
        self.has_right_headers
    }

    /// The length of the body, and the body itself if the checks need it.
    pub fn body(&self) -> (u64, &[u8]) {
        (self.body_length, &self.body)
    }

    /// The values of `Set-Cookie`, up to their first semicolon.
    pub fn cookies(&self) -> &[String] {
        &self.cookies
    }

    fn keep(&mut self, bytes: &[u8], checks: &Checks) {
        self.body_length += bytes.len() as u64;
        if checks.need_body() && self.body.len() < MAX_KEPT {
            self.body.extend_from_slice(bytes);
        }
    }

    /// Returns the number of used bytes: all, if the head is not complete yet.
    fn feed_head(&mut self, bytes: &[u8], reading: Reading) -> Result<usize, Malformed> {
        if self.partial.is_empty() {
            return match self.parse_head(bytes, reading)? {
                Some(length) => Ok(length),
                None => {
                    self.partial.extend_from_slice(bytes);
                    Ok(bytes.len())
                }
            };
        }
        let before = self.partial.len();
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        match self.parse_head(&whole, reading)? {
            Some(length) => Ok(length.saturating_sub(before)),
            None if whole.len() > MAX_HEAD => Err(Malformed),
            None => {
                self.partial = whole;
                Ok(bytes.len())
            }
        }
    }

    /// Reads the head and decides how the body ends. `None`: it is not complete.
    fn parse_head(&mut self, bytes: &[u8], reading: Reading) -> Result<Option<usize>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Malformed),
        };
        self.status = head.code.ok_or(Malformed)?;
        if (100..200).contains(&self.status) {
            // The final response follows; another protocol was not asked for.
            return if self.status == 101 { Err(Malformed) } else { Ok(Some(length)) };
        }
        self.closes = head.version == Some(0);
        self.has_right_headers = true;
        let (mut content_length, mut is_chunked) = (None, false);
        for header in head.headers.iter() {
            let name = header.name;
            if name.eq_ignore_ascii_case("content-length") {
                let value = std::str::from_utf8(header.value).ok().and_then(|value| value.trim().parse::<u64>().ok());
                if value.is_none() || content_length.is_some_and(|other| Some(other) != value) {
                    return Err(Malformed);
                }
                content_length = value;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = contains_ignoring_case(header.value, b"chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                if contains_ignoring_case(header.value, b"close") {
                    self.closes = true;
                } else if contains_ignoring_case(header.value, b"keep-alive") {
                    self.closes = false;
                }
            } else if reading.keeps_cookies && name.eq_ignore_ascii_case("set-cookie") {
                let value = header.value.split(|byte| *byte == b';').next().unwrap_or_default();
                self.cookies.push(String::from_utf8_lossy(value).trim().to_owned());
            }
        }
        for (name, expected) in &reading.checks.headers {
            let mut values = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            self.has_right_headers &= values.any(|header| String::from_utf8_lossy(header.value).contains(expected));
        }
        self.phase = match content_length {
            _ if reading.is_head || matches!(self.status, 204 | 304) => Phase::Done,
            _ if is_chunked => Phase::ChunkSize,
            Some(0) => Phase::Done,
            Some(length) => Phase::Length(length),
            None => {
                self.closes = true;
                Phase::UntilClose
            }
        };
        Ok(Some(length))
    }

    fn feed_chunk_size(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some((used, line)) = self.line(bytes)? else { return Ok(bytes.len()) };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).map_err(|_| Malformed)?.trim();
        if digits.is_empty() || digits.len() > 15 {
            return Err(Malformed);
        }
        self.phase = match u64::from_str_radix(digits, 16).map_err(|_| Malformed)? {
            0 => Phase::Trailers,
            size => Phase::Chunk(size + 2),
        };
        Ok(used)
    }

    fn feed_trailers(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let Some((used, line)) = self.line(bytes)? else { return Ok(bytes.len()) };
        if line.is_empty() {
            self.phase = Phase::Done;
        }
        Ok(used)
    }

    /// The next line without its end, and the number of bytes that it used of `bytes`. `None`: its end is missing.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<(usize, Vec<u8>)>, Malformed> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(bytes);
            return if self.partial.len() > MAX_HEAD { Err(Malformed) } else { Ok(None) };
        };
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(&bytes[..end]);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some((end + 1, line)))
    }

    /// `bytes` are the end of a chunk, of which `missing` bytes are missing: `\r\n` or `\n`.
    fn check_line_end(&self, bytes: &[u8], missing: u64) -> Result<(), Malformed> {
        let expected = &b"\r\n"[2_usize.saturating_sub(missing as usize)..];
        if missing <= 2 && !expected.starts_with(bytes) { Err(Malformed) } else { Ok(()) }
    }
}

fn contains_ignoring_case(value: &[u8], word: &[u8]) -> bool {
    value.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Checks {
        Checks { contains: Some("x".into()), headers: vec![("x-a".into(), "1".into())], ..Checks::default() }
    }

    /// Feeds the text in pieces of this size. Returns whether the response was complete before the connection ended, and
    /// the response.
    fn read(text: &str, piece: usize) -> Result<(bool, Response), Malformed> {
        let checks = checks();
        let mut response = Response::default();
        let mut is_complete = false;
        for piece in text.as_bytes().chunks(piece) {
            is_complete = response.feed(piece, Reading { checks: &checks, is_head: false, keeps_cookies: true })?;
        }
        if !is_complete && !response.end_of_connection() {
            return Err(Malformed);
        }
        Ok((is_complete, response))
    }

    #[test]
    fn each_framing_is_read_in_pieces_of_any_size() {
        for (text, body, is_complete) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true),
            ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
            ("HTTP/1.1 200 OK\r\n\r\nhello", "hello", false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
                "hello world",
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", "", true),
            (
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
                "ab",
                true,
            ),
        ] {
            for piece in 1..=text.len() {
                let (complete, response) = read(text, piece).unwrap_or_else(|_| panic!("{text:?} by {piece}"));
                assert_eq!(complete, is_complete, "{text:?} by {piece}");
                assert_eq!(response.body(), (body.len() as u64, body.as_bytes()), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn what_is_not_a_response_is_malformed() {
        for text in [
            "220 mail.example ESMTP\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello world",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        ] {
            for piece in [1, 7, text.len()] {
                assert!(read(text, piece).is_err(), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn headers_are_checked_and_cookies_kept() {
        let (_, response) =
            read("HTTP/1.1 200 OK\r\nX-A: 12\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n", 9).unwrap();
        assert!(response.has_right_headers());
        assert_eq!(response.cookies(), ["a=b"]);
        assert!(!response.closes());
        let (_, response) = read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 99).unwrap();
        assert!(!response.has_right_headers() && response.closes());
        let (_, response) = read("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", 99).unwrap();
        assert!(response.closes());
    }

    #[test]
    fn a_response_to_head_has_no_body() {
        let checks = Checks::default();
        let mut response = Response::default();
        let reading = Reading { checks: &checks, is_head: true, keeps_cookies: false };
        assert_eq!(response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", reading), Ok(true));
    }
}
