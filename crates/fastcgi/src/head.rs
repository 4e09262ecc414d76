//! The head of a CGI response (RFC 3875, 6): lines of headers up to an empty line. `Status` is the status of the response;
//! without it, it is 302 if there is a `Location`, and 200 otherwise.

use crate::record::quoted;
use std::fmt;

/// The head of a CGI response.
#[derive(Debug, PartialEq, Eq)]
pub struct ResponseHead<'b> {
    /// The status code, with three digits.
    pub status: u16,
    /// The reason after the status code; may be empty.
    pub reason: &'b [u8],
    lines: &'b [u8],
}

/// Why bytes are not the head of a CGI response. It prints as a phrase about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// It has no end within this number of bytes.
    TooLong(usize),
    /// This line is not a header.
    Line(String),
    /// This is not a status.
    Status(String),
    /// There are several statuses.
    SeveralStatuses,
}

const STATUS: &[u8] = b"Status";
const LOCATION: &[u8] = b"Location";

/// The head at the beginning of these bytes, and its length with the empty line. `None`: more bytes must come.
///
/// # Errors
/// When it is not the head of a CGI response, or longer than `longest` bytes.
pub fn parse(bytes: &[u8], longest: usize) -> Result<Option<(ResponseHead<'_>, usize)>, BadHead> {
    let mut at = 0;
    loop {
        let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > longest { Err(BadHead::TooLong(longest)) } else { Ok(None) };
        };
        let line = line_end(&bytes[at..at + length]);
        let end = at + length + 1;
        if end > longest {
            return Err(BadHead::TooLong(longest));
        }
        if line.is_empty() {
            return read(&bytes[..at]).map(|head| Some((head, end)));
        }
        if split(line).is_none() {
            return Err(BadHead::Line(quoted(line)));
        }
        at = end;
    }
}

/// A line without the CR at its end.
fn line_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The name and the value of a header.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_name = !name.is_empty() && !name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control());
    is_name.then(|| (name, value.trim_ascii()))
}

fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    lines.split(|byte| *byte == b'\n').filter_map(|line| split(line_end(line)))
}

fn read(lines: &[u8]) -> Result<ResponseHead<'_>, BadHead> {
    let mut statuses = fields(lines).filter(|(name, _)| name.eq_ignore_ascii_case(STATUS)).map(|(_, value)| value);
    let stated = statuses.next();
    if statuses.next().is_some() {
        return Err(BadHead::SeveralStatuses);
    }
    let (status, reason) = match stated {
        Some(stated) => split_status(stated).ok_or_else(|| BadHead::Status(quoted(stated)))?,
        None if fields(lines).any(|(name, _)| name.eq_ignore_ascii_case(LOCATION)) => (302, &b""[..]),
        None => (200, &b""[..]),
    };
    Ok(ResponseHead { status, reason, lines })
}

fn split_status(stated: &[u8]) -> Option<(u16, &[u8])> {
    let (code, reason) = stated.split_at_checked(3)?;
    if !code.iter().all(u8::is_ascii_digit) || !matches!(reason.first(), None | Some(b' ')) {
        return None;
    }
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    Some((code, reason.trim_ascii()))
}

// === impl ResponseHead ===

impl<'b> ResponseHead<'b> {
    /// The names and values of the headers, in order, without `Status`.
    pub fn fields(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + Clone + use<'b> {
        fields(self.lines).filter(|(name, _)| !name.eq_ignore_ascii_case(STATUS))
    }
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHead::TooLong(limit) => write!(f, "the headers of its response have no end within {limit} bytes"),
            BadHead::Line(line) => write!(f, "a line of its response is not a header: {line}"),
            BadHead::Status(status) => write!(f, "the status of its response is {status}"),
            BadHead::SeveralStatuses => write!(f, "its response has several statuses"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> (u16, String, Vec<(String, String)>, usize) {
        let (head, length) = parse(text.as_bytes(), 1000).expect("a head").expect("a whole head");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.fields().map(|(name, value)| (text(name), text(value))).collect();
        (head.status, text(head.reason), fields, length)
    }

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_head_has_a_status_and_headers() {
        let php = "Status: 404 Not Found\r\nX-Powered-By: PHP/8.2\r\nContent-type: text/html\r\n\r\nbody: x\n\n";
        let fields = vec![field("X-Powered-By", "PHP/8.2"), field("Content-type", "text/html")];
        assert_eq!(head(php), (404, "Not Found".to_owned(), fields, php.len() - 9));
        assert_eq!(head("A:b\n\n"), (200, String::new(), vec![field("A", "b")], 5), "lines may end with LF alone");
        assert_eq!(head("\r\n"), (200, String::new(), vec![], 2));
        assert_eq!(head("location: /x\n\n").0, 302);
        assert_eq!(head("Location: /x\nSTATUS: 201\n\n").0, 201);
        assert_eq!(head("Status: 599 \n\n").1, "");
    }

    #[test]
    fn an_incomplete_head_waits_for_more() {
        let text = b"Status: 200 OK\r\nA: b\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(parse(&text[..length], 1000), Ok(None), "{length} bytes");
        }
    }

    #[test]
    fn a_head_has_a_limit() {
        assert_eq!(parse(&[b'a'; 101], 100), Err(BadHead::TooLong(100)));
        assert_eq!(parse(&b"a: b\n".repeat(21), 100), Err(BadHead::TooLong(100)));
        let whole = [&b"a: b\n".repeat(19)[..], b"\n"].concat();
        assert!(matches!(parse(&whole, 100), Ok(Some((_, 96)))));
    }

    #[test]
    fn a_wrong_head_is_explained() {
        for (text, expected) in [
            ("<html>\n", r#"a line of its response is not a header: "<html>""#),
            ("Warning in x.php: a\n", r#"a line of its response is not a header: "Warning in x.php: a""#),
            (" folded: x\n", r#"a line of its response is not a header: "folded: x""#),
            (": x\n", r#"a line of its response is not a header: ": x""#),
            ("Status: OK\n\n", r#"the status of its response is "OK""#),
            ("Status: 2000\n\n", r#"the status of its response is "2000""#),
            ("Status:\n\n", r#"the status of its response is """#),
            ("Status: 200\nStatus: 500\n\n", "its response has several statuses"),
        ] {
            let error = parse(text.as_bytes(), 1000).expect_err(text);
            assert_eq!(error.to_string(), expected);
        }
    }
}
