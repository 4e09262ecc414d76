//! The parts of a `multipart/form-data` body (RFC 7578), as the bytes come.
//!
//! As in PHP: text before the first boundary is skipped, and so is a part without a name. A body without its last
//! boundary, or with a part whose headers are too long, is an error.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// Splits a body into parts.
#[derive(Debug)]
pub struct MultipartParser {
    /// `\r\n--` and the boundary.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartPiece {
    /// A part begins.
    Part(PartHead),
    /// Bytes of the part.
    Data(Bytes),
    /// The part is complete.
    End,
}

/// The head of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// The name of the field; `None`: the part is skipped.
    pub name: Option<String>,
    /// The name of the file on the client, without folders; `None` for a field without a file.
    pub file_name: Option<String>,
    /// The type of its content.
    pub content_type: Option<String>,
}

/// The body is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMultipart;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Preamble,
    /// After a boundary: the end of its line, or the end of the body.
    Boundary,
    Head,
    Data,
    /// After the last boundary.
    Epilogue,
}

/// The most bytes of the headers of a part.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The longest boundary: RFC 2046 allows 70 bytes.
const MAX_BOUNDARY_BYTES: usize = 200;
const LINE_END: &[u8] = b"\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

// === impl MultipartParser ===

impl MultipartParser {
    /// A parser for a body of this content type; `None` if it has no boundary.
    pub fn new(content_type: &str) -> Option<MultipartParser> {
        let (_, parameters) = content_type.split_once(';')?;
        let boundary = parameter(parameters, "boundary").filter(|boundary| !boundary.is_empty())?;
        if boundary.len() > MAX_BOUNDARY_BYTES {
            return None;
        }
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // The first boundary may be at the beginning of the body.
        let buffer = BytesMut::from(LINE_END);
        Some(MultipartParser { delimiter, buffer, state: State::Preamble })
    }

    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Epilogue {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next piece; `None` if more bytes are needed.
    ///
    /// # Errors
    /// When the body is not valid.
    pub fn next(&mut self) -> Result<Option<MultipartPiece>, BadMultipart> {
        loop {
            match self.state {
                State::Preamble => match memmem::find(&self.buffer, &self.delimiter) {
                    Some(at) => {
                        self.buffer.advance(at + self.delimiter.len());
                        self.state = State::Boundary;
                    }
                    None => {
                        let kept = self.buffer.len().min(self.delimiter.len());
                        self.buffer.advance(self.buffer.len() - kept);
                        return Ok(None);
                    }
                },
                State::Boundary => {
                    if self.buffer.starts_with(b"--") {
                        self.buffer.clear();
                        self.state = State::Epilogue;
                        continue;
                    }
                    let Some(end) = memmem::find(&self.buffer, LINE_END) else {
                        return if self.buffer.len() > MAX_HEAD_BYTES { Err(BadMultipart) } else { Ok(None) };
                    };
                    if !self.buffer[..end].trim_ascii().is_empty() {
                        return Err(BadMultipart);
                    }
                    // The line end may be the first half of the end of an empty head.
                    self.buffer.advance(end);
                    self.state = State::Head;
                }
                State::Head => {
                    let Some(end) = memmem::find(&self.buffer, HEAD_END) else {
                        return if self.buffer.len() > MAX_HEAD_BYTES { Err(BadMultipart) } else { Ok(None) };
                    };
                    if end > MAX_HEAD_BYTES {
                        return Err(BadMultipart);
                    }
                    let head = part_head(&self.buffer[..end]);
                    self.buffer.advance(end + HEAD_END.len());
                    self.state = State::Data;
                    return Ok(Some(MultipartPiece::Part(head)));
                }
                State::Data => {
                    return Ok(match memmem::find(&self.buffer, &self.delimiter) {
                        Some(0) => {
                            self.buffer.advance(self.delimiter.len());
                            self.state = State::Boundary;
                            Some(MultipartPiece::End)
                        }
                        Some(at) => Some(MultipartPiece::Data(self.buffer.split_to(at).freeze())),
                        None => {
                            // A part of the delimiter may be at the end.
                            let length = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
                            (length > 0).then(|| MultipartPiece::Data(self.buffer.split_to(length).freeze()))
                        }
                    });
                }
                State::Epilogue => return Ok(None),
            }
        }
    }

    /// Whether the last boundary has come.
    pub fn has_ended(&self) -> bool {
        self.state == State::Epilogue
    }
}

fn part_head(head: &[u8]) -> PartHead {
    let head = String::from_utf8_lossy(head);
    let mut part = PartHead::default();
    for (name, value) in head.split("\r\n").filter_map(|line| line.split_once(':')) {
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            let Some((kind, parameters)) = value.split_once(';') else { continue };
            if kind.trim().eq_ignore_ascii_case("form-data") {
                part.name = parameter(parameters, "name").filter(|name| !name.is_empty());
                part.file_name = parameter(parameters, "filename").map(|name| base_name(&name).to_owned());
            }
        } else if name.trim().eq_ignore_ascii_case("content-type") {
            part.content_type = Some(value.trim().to_owned());
        }
    }
    part
}

/// The name of a file without its folders: old browsers sent them.
fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// The value of a parameter: `name=value; name="quoted \" value"`.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => after.split_once(';').map_or((after.to_owned(), ""), |(value, next)| (value.to_owned(), next)),
        };
        if key.trim().trim_start_matches(';').trim().eq_ignore_ascii_case(name) {
            return Some(value.trim_end().to_owned());
        }
        rest = next;
    }
}

/// The text up to the closing quote, and the rest. As in PHP, a backslash only escapes a quote and itself: Windows paths
/// keep theirs.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, escaped)) => value.push(escaped),
                None => value.push('\\'),
            },
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; charset=utf-8; boundary=\"XX\"";

    /// The parts as text: name, name of the file, type, content.
    fn parse(body: &[u8], portion: usize) -> Result<Vec<String>, BadMultipart> {
        let mut parser = MultipartParser::new(TYPE).expect("a boundary");
        let mut parts: Vec<String> = Vec::new();
        for portion in body.chunks(portion) {
            parser.push(portion);
            while let Some(piece) = parser.next()? {
                match piece {
                    MultipartPiece::Part(PartHead { name, file_name, content_type }) => {
                        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                        parts.push(format!("{} {} {} ", text(name), text(file_name), text(content_type)));
                    }
                    MultipartPiece::Data(data) => {
                        parts.last_mut().expect("a part").push_str(&String::from_utf8_lossy(&data));
                    }
                    MultipartPiece::End => parts.last_mut().expect("a part").push('.'),
                }
            }
        }
        if parser.has_ended() { Ok(parts) } else { Err(BadMultipart) }
    }

    #[test]
    fn a_body_is_split_into_its_parts_in_portions_of_any_size() {
        let body = concat!(
            "preamble\r\n--XX \r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--X\r\n--XX\r\n",
            "content-disposition:form-data;filename=\"C:\\x\\y \\\"z\\\".txt\" ; name=b\r\nContent-Type: text/plain\r\n\r\n",
            "\r\n\r\n--XX\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--XX\r\n\r\nunnamed\r\n--XX\r\n",
            "Content-Disposition: form-data; name=\"none\"; filename=\"\"\r\n\r\n\r\n--XX--\r\nepilogue --XX\r\n",
        );
        let expected =
            ["a - - 1\r\n--X.", "b y \"z\".txt text/plain \r\n.", "empty - - .", "- - - unnamed.", "none  - ."];
        for portion in [1, 2, 3, 7, body.len()] {
            assert_eq!(parse(body.as_bytes(), portion).expect("parts"), expected, "{portion}");
        }
        assert_eq!(parse(b"--XX--", 1), Ok(Vec::new()));
    }

    #[test]
    fn a_wrong_body_is_an_error() {
        let long = format!("--XX\r\nA: {}\r\n\r\n\r\n--XX--", "x".repeat(MAX_HEAD_BYTES));
        let cases = ["", "x", "--XX\r\n\r\nx", "--XXY\r\n\r\nx\r\n--XX--", "--XX\r\nA: b\r\n--XX--", &long];
        for body in cases {
            assert_eq!(parse(body.as_bytes(), 5), Err(BadMultipart), "{body:.20}");
        }
        for wrong in ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"\""] {
            assert!(MultipartParser::new(wrong).is_none(), "{wrong}");
        }
    }
}
