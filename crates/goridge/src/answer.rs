//! A worker's frames become a response.
//!
//! The reader takes bytes as they come, and returns pieces: a head, the bytes of the body, the end. The context of the
//! first final status is the head. Later contexts of a stream repeat it, and are dropped. Those before it are of interim
//! responses (103). An error frame is the whole answer. Bytes after the end are left in the buffer.

use crate::frame::{FrameHeader, HEADER_BYTES, OPTION_BYTES, Violation, flag, stream};
use crate::response::ResponseContext;
use bytes::{Buf, Bytes, BytesMut};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPiece {
    /// The status and the headers.
    Head(ResponseContext),
    /// The status, below 200, and the headers of an interim response. The head follows.
    Interim(ResponseContext),
    /// Bytes of the body. They follow the head.
    Body(Bytes),
    /// The worker wants a `PONG`.
    Ping,
    /// The text of an error, in place of a response. The worker goes on.
    Error(String),
    /// The worker did not handle the request, and wants to be replaced. Another one gets the request.
    Restart,
    /// The answer is complete.
    End,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub struct AnswerReader {
    state: State,
    /// Whether the head was returned.
    has_head: bool,
    /// How many bytes the frames of interim responses have had.
    interim: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A header comes next.
    #[default]
    Header,
    /// The option and the context of a frame come next.
    Context(FrameHeader),
    /// The text of an error.
    ErrorText(u32),
    /// This number of bytes of the body, and whether more frames follow. They are dropped before the head.
    Body(u32, bool),
    Ended,
}

/// The most bytes of a context.
pub const MAX_CONTEXT: u32 = 256 * 1024;
/// The most bytes of the frames of all interim responses: without a limit, an answer might never begin.
const MAX_INTERIM: usize = 256 * 1024;
/// The most bytes of the text of an error.
const MAX_ERROR_TEXT: u32 = 64 * 1024;
/// The context by which a worker requests its end.
const RESTART: &[u8] = br#"{"stop":true}"#;

// === impl AnswerReader ===

impl AnswerReader {
    /// Whether the answer is complete.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether the head has come.
    pub fn has_begun(&self) -> bool {
        self.has_head
    }

    /// Whether more frames of a stream follow.
    pub fn is_streaming(&self) -> bool {
        self.has_head && matches!(self.state, State::Header | State::Context(_) | State::Body(_, true))
    }

    /// How many bytes of the body are left, if the last frame has begun.
    pub fn frame_rest(&self) -> Option<u64> {
        match self.state {
            State::Body(left, false) => Some(left.into()),
            State::Ended => Some(0),
            _ => None,
        }
    }

    /// The next piece in these bytes; `None` if more bytes are needed.
    ///
    /// # Errors
    /// When they are no answer.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<AnswerPiece>, Violation> {
        loop {
            match self.state {
                State::Header => {
                    let Some(bytes) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
                    let header = FrameHeader::decode(bytes)?;
                    self.state = self.after_header(header)?;
                    buffer.advance(HEADER_BYTES);
                    if header.stream & stream::PING != 0 {
                        return Ok(Some(AnswerPiece::Ping));
                    }
                }
                State::Context(header) => {
                    let Some(option) = buffer.first_chunk::<OPTION_BYTES>() else { return Ok(None) };
                    let length = u32::from_le_bytes(*option);
                    if length > header.payload {
                        let payload = header.payload;
                        return Err(Violation(format!("its frame of {payload} bytes has a context of {length} bytes")));
                    }
                    if length > MAX_CONTEXT {
                        let problem = "a status and headers of";
                        return Err(Violation(format!(
                            "its response has {problem} {length} bytes; {MAX_CONTEXT} are allowed"
                        )));
                    }
                    if buffer.len() < OPTION_BYTES + length as usize {
                        return Ok(None);
                    }
                    buffer.advance(OPTION_BYTES);
                    let context = buffer.split_to(length as usize);
                    let more = header.stream & stream::MORE != 0;
                    self.state = State::Body(header.payload - length, more);
                    if let Some(piece) = self.take_context(&context, header)? {
                        return Ok(Some(piece));
                    }
                }
                State::ErrorText(length) => {
                    if buffer.len() < length as usize {
                        return Ok(None);
                    }
                    self.state = State::Ended;
                    let text = buffer.split_to(length as usize);
                    return Ok(Some(AnswerPiece::Error(String::from_utf8_lossy(&text).into_owned())));
                }
                State::Body(0, true) => self.state = State::Header,
                State::Body(0, false) if !self.has_head => {
                    return Err(Violation("its response has no status".to_owned()));
                }
                State::Body(0, false) => {
                    self.state = State::Ended;
                    return Ok(Some(AnswerPiece::End));
                }
                State::Body(left, more) => {
                    if buffer.is_empty() {
                        return Ok(None);
                    }
                    let length = buffer.len().min(left as usize);
                    self.state = State::Body(left - length as u32, more);
                    let bytes = buffer.split_to(length).freeze();
                    if self.has_head {
                        return Ok(Some(AnswerPiece::Body(bytes)));
                    }
                }
                State::Ended => return Ok(None),
            }
        }
    }

    fn after_header(&self, header: FrameHeader) -> Result<State, Violation> {
        if header.flags & flag::ERROR != 0 {
            if self.has_head || header.options != 0 || header.payload > MAX_ERROR_TEXT {
                return Err(Violation("its error frame is within a response, or too long".to_owned()));
            }
            return Ok(State::ErrorText(header.payload));
        }
        if header.flags & flag::CONTROL != 0 {
            return Err(Violation("it sent a control frame in place of a response".to_owned()));
        }
        if header.options != 1 {
            return Err(Violation(format!("its response has {} options, and not one", header.options)));
        }
        Ok(State::Context(header))
    }

    /// The piece that a context stands for, if it is one.
    fn take_context(&mut self, context: &[u8], header: FrameHeader) -> Result<Option<AnswerPiece>, Violation> {
        if self.has_head || context.is_empty() {
            return Ok(None);
        }
        let length = context.len();
        if context == RESTART && self.state == State::Body(0, false) {
            self.state = State::Ended;
            return Ok(Some(AnswerPiece::Restart));
        }
        // Libraries answer in the encoding of the request. Each response names its own.
        let context = match header.flags & flag::PROTO {
            0 => ResponseContext::from_json(context)?,
            _ => ResponseContext::from_proto(context)?,
        };
        if (100..200).contains(&context.status) {
            self.interim += HEADER_BYTES + OPTION_BYTES + length;
            if self.interim > MAX_INTERIM {
                return Err(Violation(format!("its interim responses have more than {MAX_INTERIM} bytes")));
            }
            return Ok(Some(AnswerPiece::Interim(context)));
        }
        self.has_head = true;
        Ok(Some(AnswerPiece::Head(context)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{control_frame, data_frame};

    const OK: &str = r#"{"status":200,"headers":{}}"#;

    fn frame(flags: u8, stream: u8, context: &str, body: &str) -> Vec<u8> {
        let payload = (context.len() + body.len()) as u32;
        let header = FrameHeader { options: 1, flags, stream, payload }.encode();
        [&header, &(context.len() as u32).to_le_bytes()[..], context.as_bytes(), body.as_bytes()].concat()
    }

    fn error(text: &str) -> Vec<u8> {
        let header = FrameHeader { options: 0, flags: flag::ERROR, stream: 0, payload: text.len() as u32 };
        [&header.encode(), text.as_bytes()].concat()
    }

    /// The pieces as text, and the rest. The bytes come in portions of this size.
    fn read(bytes: &[u8], portion: usize) -> (String, Result<usize, Violation>) {
        let (mut reader, mut buffer, mut text) = (AnswerReader::default(), BytesMut::new(), String::new());
        for portion in bytes.chunks(portion) {
            buffer.extend_from_slice(portion);
            loop {
                match reader.next(&mut buffer) {
                    Ok(Some(AnswerPiece::Body(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
                    Ok(Some(AnswerPiece::Interim(head))) => text.push_str(&format!("({})", head.status)),
                    Ok(Some(AnswerPiece::Head(head))) => text.push_str(&format!("<{}>", head.status)),
                    Ok(Some(piece)) => text.push_str(&format!("<{piece:?}>")),
                    Ok(None) => break,
                    Err(violation) => return (text, Err(violation)),
                }
            }
        }
        (text, Ok(buffer.len()))
    }

    #[test]
    fn an_answer_has_the_same_pieces_in_portions_of_any_size() {
        let (more, ping) = (stream::MORE, stream::PING);
        let cases = [
            (frame(0, 0, OK, "hello"), "<200>hello<End>"),
            (frame(flag::JSON, 0, OK, ""), "<200><End>"),
            (
                [frame(0, more, OK, "a"), frame(0, more | ping, "", "b"), frame(0, 0, "", "c")].concat(),
                "<200>a<Ping>bc<End>",
            ),
            ([frame(0, more, OK, "a"), frame(0, more, OK, "b"), frame(0, 0, OK, "")].concat(), "<200>ab<End>"),
            ([frame(0, more, r#"{"status":103}"#, "x"), frame(0, 0, OK, "y")].concat(), "(103)<200>y<End>"),
            (frame(0, 0, r#"{"stop":true}"#, ""), "<Restart>"),
            (error("no database"), r#"<Error("no database")>"#),
            (error(""), r#"<Error("")>"#),
            (frame(flag::PROTO, 0, "\x08\x01", "a"), "<1>a<End>"),
            (
                [frame(flag::PROTO, more, "\x08\x67", ""), frame(flag::PROTO, 0, "\x08\x01", "a")].concat(),
                "(103)<1>a<End>",
            ),
        ];
        for (bytes, expected) in cases {
            for portion in [1, 5, bytes.len()] {
                assert_eq!(read(&bytes, portion), (expected.to_owned(), Ok(0)), "{portion}");
            }
        }
    }

    #[test]
    fn bytes_after_the_end_are_left() {
        let bytes = [frame(0, 0, OK, "x"), b"more".to_vec()].concat();
        assert_eq!(read(&bytes, bytes.len()), ("<200>x<End>".to_owned(), Ok(4)));
    }

    #[test]
    fn bytes_that_are_no_answer_are_a_violation() {
        let options = |options| FrameHeader { options, flags: 0, stream: 0, payload: 0 }.encode().to_vec();
        let huge = data_frame(0, MAX_CONTEXT + 1, u32::MAX).to_vec();
        let cases = [
            (b"PHP Warning:  x in y on line 1".to_vec(), "it wrote something that is not a frame"),
            (options(0), "its response has 0 options"),
            (options(2), "its response has 2 options"),
            (data_frame(0, 5, 4).to_vec(), "its frame of 4 bytes has a context of 5 bytes"),
            (huge, "its response has a status and headers of 262145 bytes"),
            (control_frame(r#"{"pid":1}"#), "it sent a control frame"),
            (frame(0, 0, "", "x"), "its response has no status"),
            (frame(0, 0, r#"{"status":103}"#, ""), "its response has no status"),
            (frame(flag::PROTO, stream::MORE, "\x08\x67", "").repeat(20_000), "its interim responses have more than"),
            (frame(0, 0, r#"{"stop":true}"#, "x"), "its response begins with"),
            (frame(flag::PROTO, 0, OK, ""), "its response is not the protobuf message"),
            (error(&"x".repeat(MAX_ERROR_TEXT as usize + 1)), "its error frame is"),
            ([frame(0, stream::MORE, OK, ""), error("x")].concat(), "its error frame is within a response"),
        ];
        for (bytes, expected) in cases {
            let (_, result) = read(&bytes, bytes.len());
            let violation = result.expect_err(expected);
            assert!(violation.0.starts_with(expected), "{violation}");
        }
    }
}
