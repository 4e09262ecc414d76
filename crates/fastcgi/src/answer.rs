//! The records of a server become pieces of a response. The content of a record is passed on as it comes: the reader
//! waits only for a header, and for the content of the record that ends the request.

use crate::record::{CONNECTION, HEADER_BYTES, REQUEST, RecordHeader, Violation, kind};
use bytes::{Buf, Bytes, BytesMut};

/// Reads the answer to one request.
#[derive(Debug, Default)]
pub struct AnswerReader {
    state: State,
    /// The server has ended its response: no more of it may come.
    stdout_has_ended: bool,
    stderr_has_ended: bool,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPiece {
    /// A part of the CGI response; not empty.
    Response(Bytes),
    /// A part of the messages for the log; not empty.
    Messages(Bytes),
    /// The end of the request.
    End(RequestEnd),
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The exit status of the application.
    pub status: u32,
    /// Whether the request was carried out.
    pub outcome: Outcome,
}

/// Whether a request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was.
    Complete,
    /// It was not: the server runs one request on a connection at a time.
    NoMultiplexing,
    /// It was not: the server has too much to do.
    Overloaded,
    /// It was not: the server is not one that answers requests.
    UnknownRole,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The next bytes are a header.
    #[default]
    Header,
    /// The next bytes are content of a stream, then padding.
    Content(RecordHeader),
    /// The next bytes are padding.
    Padding(u8),
    /// The next bytes are the content that ends the request, then padding.
    End(RecordHeader),
    Ended,
}

/// The length of the content that ends a request.
const END_BYTES: u16 = 8;

// === impl AnswerReader ===

impl AnswerReader {
    /// The next piece of these bytes; `None` when more of them must come. Bytes that were read are taken out.
    ///
    /// # Errors
    /// When the server breaks a rule of the protocol. The connection must be closed.
    pub fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<AnswerPiece>, Violation> {
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return self.check_beginning(bytes) };
                    let header = RecordHeader::decode(header)?;
                    bytes.advance(HEADER_BYTES);
                    self.state = self.check(header)?;
                }
                State::Content(header) if header.content == 0 => {
                    self.end_stream(header.kind);
                    self.state = State::Padding(header.padding);
                }
                State::Content(header) => {
                    let length = usize::from(header.content).min(bytes.len());
                    if length == 0 {
                        return Ok(None);
                    }
                    let part = bytes.split_to(length).freeze();
                    let rest = header.content - length as u16;
                    self.state = match rest {
                        0 => State::Padding(header.padding),
                        _ => State::Content(RecordHeader { content: rest, ..header }),
                    };
                    return Ok(Some(match header.kind {
                        kind::STDOUT => AnswerPiece::Response(part),
                        _ => AnswerPiece::Messages(part),
                    }));
                }
                State::Padding(padding) => {
                    let length = usize::from(padding).min(bytes.len());
                    bytes.advance(length);
                    let rest = padding - length as u8;
                    if rest > 0 {
                        self.state = State::Padding(rest);
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::End(header) => {
                    let length = usize::from(header.content) + usize::from(header.padding);
                    if bytes.len() < length {
                        return Ok(None);
                    }
                    let record = bytes.split_to(length);
                    self.state = State::Ended;
                    return request_end(&record).map(AnswerPiece::End).map(Some);
                }
                State::Ended => return Ok(None),
            }
        }
    }

    /// Whether the request has ended. Bytes that follow belong to no answer.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// An answer that begins with another version is wrong at its first byte: no more may ever come.
    fn check_beginning(&self, bytes: &BytesMut) -> Result<Option<AnswerPiece>, Violation> {
        match bytes.first() {
            None | Some(&crate::record::VERSION) => Ok(None),
            Some(_) => {
                let beginning = crate::record::quoted(bytes);
                Err(Violation(format!("it sent something that is not FastCGI, beginning with {beginning}")))
            }
        }
    }

    /// The part that follows a header.
    fn check(&self, header: RecordHeader) -> Result<State, Violation> {
        let RecordHeader { kind, request, content, .. } = header;
        match (kind, request) {
            (kind::STDOUT | kind::STDERR, REQUEST) => {
                let has_ended = if kind == kind::STDOUT { self.stdout_has_ended } else { self.stderr_has_ended };
                if has_ended && content > 0 {
                    return Err(Violation("it sent more of a stream after its end".to_owned()));
                }
                Ok(State::Content(header))
            }
            (kind::END_REQUEST, REQUEST) if content == END_BYTES => Ok(State::End(header)),
            (kind::END_REQUEST, REQUEST) => {
                Err(Violation(format!("it ended a request with {content} bytes, in place of {END_BYTES}")))
            }
            (kind::STDOUT | kind::STDERR | kind::END_REQUEST, request) => {
                Err(Violation(format!("it answered the request number {request}, which it does not have")))
            }
            (kind::UNKNOWN_TYPE | kind::GET_VALUES_RESULT, CONNECTION) => {
                Err(Violation("it answered a question that it was not asked".to_owned()))
            }
            (kind, _) => Err(Violation(format!("it sent a record of the type {kind}, which servers do not send"))),
        }
    }

    fn end_stream(&mut self, kind: u8) {
        match kind {
            kind::STDOUT => self.stdout_has_ended = true,
            _ => self.stderr_has_ended = true,
        }
    }
}

fn request_end(content: &[u8]) -> Result<RequestEnd, Violation> {
    // The length was checked with the header.
    let [s3, s2, s1, s0, outcome, ..] = *content else {
        return Err(Violation("it ended a request with too few bytes".to_owned()));
    };
    let outcome = match outcome {
        0 => Outcome::Complete,
        1 => Outcome::NoMultiplexing,
        2 => Outcome::Overloaded,
        3 => Outcome::UnknownRole,
        other => return Err(Violation(format!("it ended a request with the unknown status {other}"))),
    };
    Ok(RequestEnd { status: u32::from_be_bytes([s3, s2, s1, s0]), outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, request: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let header = RecordHeader { kind, request, content: content.len() as u16, padding };
        [&header.encode()[..], content, &vec![0xaa; padding.into()]].concat()
    }

    /// All pieces, with the parts of a stream joined; and the violation, if there is one.
    fn read(bytes: &[u8], portion: usize) -> (Vec<AnswerPiece>, Option<String>) {
        let (mut reader, mut buffer, mut pieces) =
            (AnswerReader::default(), BytesMut::new(), Vec::<AnswerPiece>::new());
        for portion in bytes.chunks(portion) {
            buffer.extend_from_slice(portion);
            loop {
                match reader.next(&mut buffer) {
                    Ok(Some(piece)) => match (pieces.last_mut(), piece) {
                        (Some(AnswerPiece::Response(all)), AnswerPiece::Response(part)) => {
                            *all = [&all[..], &part].concat().into();
                        }
                        (Some(AnswerPiece::Messages(all)), AnswerPiece::Messages(part)) => {
                            *all = [&all[..], &part].concat().into();
                        }
                        (_, piece) => pieces.push(piece),
                    },
                    Ok(None) => break,
                    Err(violation) => return (pieces, Some(violation.0)),
                }
            }
        }
        (pieces, None)
    }

    #[test]
    fn an_answer_is_the_same_however_it_is_split() {
        let answer = [
            record(kind::STDERR, 1, b"PHP message: x", 2),
            record(kind::STDOUT, 1, b"Status: 404 Not Found\r\n\r\n", 0),
            record(kind::STDOUT, 1, b"body", 255),
            record(kind::STDERR, 1, b"", 0),
            record(kind::STDOUT, 1, b"", 8),
            record(kind::END_REQUEST, 1, &[0, 0, 0, 7, 0, 0, 0, 0], 3),
        ]
        .concat();
        let end = RequestEnd { status: 7, outcome: Outcome::Complete };
        let expected = vec![
            AnswerPiece::Messages("PHP message: x".into()),
            AnswerPiece::Response("Status: 404 Not Found\r\n\r\nbody".into()),
            AnswerPiece::End(end),
        ];
        for portion in 1..=answer.len() {
            assert_eq!(read(&answer, portion), (expected.clone(), None), "portions of {portion} bytes");
        }
    }

    #[test]
    fn content_is_passed_on_before_its_record_is_complete() {
        let (mut reader, mut buffer) = (AnswerReader::default(), BytesMut::new());
        buffer.extend_from_slice(&record(kind::STDOUT, 1, &[b'x'; 60_000], 0)[..1000]);
        assert_eq!(reader.next(&mut buffer), Ok(Some(AnswerPiece::Response(vec![b'x'; 992].into()))));
        assert_eq!((reader.next(&mut buffer), buffer.len()), (Ok(None), 0));
    }

    #[test]
    fn each_broken_rule_is_named() {
        let end = |outcome| record(kind::END_REQUEST, 1, &[0, 0, 0, 0, outcome, 0, 0, 0], 0);
        let cases = [
            (b"HTTP/1.1 400 Bad Request".to_vec(), "not FastCGI, beginning with \"HTTP/1.1\""),
            (b"H".to_vec(), "not FastCGI, beginning with \"H\""),
            (record(kind::STDOUT, 2, b"x", 0), "it answered the request number 2, which it does not have"),
            (record(kind::END_REQUEST, 0, &[0; 8], 0), "it answered the request number 0"),
            (record(kind::END_REQUEST, 1, &[0; 9], 0), "it ended a request with 9 bytes, in place of 8"),
            (end(4), "it ended a request with the unknown status 4"),
            (record(kind::PARAMS, 1, b"", 0), "it sent a record of the type 4, which servers do not send"),
            (record(77, 1, b"", 0), "it sent a record of the type 77"),
            (record(kind::UNKNOWN_TYPE, 0, &[0; 8], 0), "it answered a question that it was not asked"),
            (
                [record(kind::STDOUT, 1, b"", 0), record(kind::STDOUT, 1, b"x", 0)].concat(),
                "it sent more of a stream after its end",
            ),
        ];
        for (bytes, expected) in cases {
            let (pieces, violation) = read(&bytes, bytes.len());
            assert_eq!(pieces, []);
            assert!(violation.as_ref().is_some_and(|text| text.contains(expected)), "{expected}: {violation:?}");
        }
        for (number, outcome) in [(1, Outcome::NoMultiplexing), (2, Outcome::Overloaded), (3, Outcome::UnknownRole)] {
            assert_eq!(read(&end(number), 3).0, [AnswerPiece::End(RequestEnd { status: 0, outcome })]);
        }
    }

    #[test]
    fn nothing_after_the_end_is_read() {
        let (mut reader, mut buffer) = (AnswerReader::default(), BytesMut::new());
        buffer.extend_from_slice(&record(kind::END_REQUEST, 1, &[0; 8], 0));
        buffer.extend_from_slice(b"more");
        assert!(matches!(reader.next(&mut buffer), Ok(Some(AnswerPiece::End(_)))));
        assert!(reader.has_ended());
        assert_eq!((reader.next(&mut buffer), &buffer[..]), (Ok(None), &b"more"[..]));
    }
}
