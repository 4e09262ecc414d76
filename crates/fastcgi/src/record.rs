//! The header of a record.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | the version, 1 |
//! | 1 | the type: [`kind`] |
//! | 2 and 3 | the number of the request; 0 in a record about the connection |
//! | 4 and 5 | the length of the content, in bytes |
//! | 6 | the length of the padding after the content, in bytes |
//! | 7 | 0 |
//!
//! All numbers are big endian.

use std::fmt;

/// The length of a header, in bytes.
pub const HEADER_BYTES: usize = 8;
/// The most bytes of content in a record.
pub const MAX_CONTENT: usize = 65535;
/// The version of the records.
pub const VERSION: u8 = 1;
/// The number of a record that belongs to no request.
pub const CONNECTION: u16 = 0;
/// The number of every request that howdah sends: a connection carries one request at a time.
pub const REQUEST: u16 = 1;

/// The types of records.
pub mod kind {
    /// A request begins.
    pub const BEGIN_REQUEST: u8 = 1;
    /// The web server gives a request up.
    pub const ABORT_REQUEST: u8 = 2;
    /// A request has ended.
    pub const END_REQUEST: u8 = 3;
    /// The variables of a request.
    pub const PARAMS: u8 = 4;
    /// The body of a request.
    pub const STDIN: u8 = 5;
    /// The response: its head, and its body.
    pub const STDOUT: u8 = 6;
    /// Messages for the log.
    pub const STDERR: u8 = 7;
    /// A question about the server.
    pub const GET_VALUES: u8 = 9;
    /// The answer to a question about the server.
    pub const GET_VALUES_RESULT: u8 = 10;
    /// The server does not know a type of management records.
    pub const UNKNOWN_TYPE: u8 = 11;
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Its type.
    pub kind: u8,
    /// The number of its request.
    pub request: u16,
    /// The length of the content, in bytes.
    pub content: u16,
    /// The length of the padding, in bytes.
    pub padding: u8,
}

/// A rule of the protocol that the other side broke. It prints as a phrase about that side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// How much of a text of the other side is quoted, in characters.
const QUOTED_CHARS: usize = 200;

// === impl RecordHeader ===

impl RecordHeader {
    /// The header of these bytes.
    ///
    /// # Errors
    /// When the version is wrong: these bytes are no FastCGI.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<RecordHeader, Violation> {
        let [version, kind, request1, request0, content1, content0, padding, _] = *bytes;
        if version != VERSION {
            return Err(Violation(format!("it sent something that is not FastCGI, beginning with {}", quoted(bytes))));
        }
        let request = u16::from_be_bytes([request1, request0]);
        Ok(RecordHeader { kind, request, content: u16::from_be_bytes([content1, content0]), padding })
    }

    /// The bytes of the header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let ([request1, request0], [content1, content0]) = (self.request.to_be_bytes(), self.content.to_be_bytes());
        [VERSION, self.kind, request1, request0, content1, content0, self.padding, 0]
    }
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text of the other side for a log line: its beginning, with escapes for control characters.
pub fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let beginning: String = text.trim().chars().take(QUOTED_CHARS).collect();
    format!("{beginning:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = RecordHeader { kind: kind::STDOUT, request: 0x0102, content: 0xfffe, padding: 7 };
        assert_eq!(header.encode(), [1, 6, 1, 2, 0xff, 0xfe, 7, 0]);
        assert_eq!(RecordHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn bytes_of_another_protocol_are_quoted() {
        let violation = RecordHeader::decode(b"HTTP/1.1").expect_err("HTTP");
        assert_eq!(violation.to_string(), r#"it sent something that is not FastCGI, beginning with "HTTP/1.1""#);
        assert_eq!(quoted(b" a\n\x1b[31m\xff "), r#""a\n\u{1b}[31m�""#);
    }
}
