//! The records of a web server become pieces of a request. The content of the body's records is passed on as it comes; the
//! variables are collected, up to a limit.
//!
//! A connection carries one request at a time. Another one that begins meanwhile is refused, and records of requests that
//! are not there are skipped, as the specification demands. Records without a use are counted: a web server that sends
//! [`MAX_USELESS`] of them between two requests breaks a rule.

use crate::answer::Outcome;
use crate::record::{CONNECTION, HEADER_BYTES, RecordHeader, VERSION, Violation, kind, quoted};
use bytes::{Buf, Bytes, BytesMut};

/// Reads the requests of one connection.
#[derive(Debug)]
pub struct RequestReader {
    state: State,
    request: Option<CurrentRequest>,
    /// The variables that have come.
    list: Vec<u8>,
    /// The most bytes of variables.
    max_list: usize,
    /// How many records without a use came since the last request began.
    useless: u32,
}

/// A piece of what a web server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPiece {
    /// A request begins.
    Begin {
        /// Its number.
        request: u16,
        /// Whether the connection stays open after the request.
        keeps_connection: bool,
    },
    /// The variables of the request, as a list of names and values. Its body follows.
    Variables(Vec<u8>),
    /// The request has more variables than the limit allows. Nothing more of it is read.
    TooManyVariables,
    /// A part of the body; not empty.
    Body(Bytes),
    /// The end of the body.
    BodyEnd,
    /// The web server gives the request up.
    Abort,
    /// A request that is not carried out, for this reason.
    Refused {
        /// Its number.
        request: u16,
        /// The reason.
        outcome: Outcome,
        /// Whether the connection stays open.
        keeps_connection: bool,
    },
    /// A question about the server, as a list of names.
    Question(Bytes),
    /// A record about the connection, of a type that is not known.
    UnknownType(u8),
}

#[derive(Clone, Copy, Debug)]
struct CurrentRequest {
    number: u16,
    part: Part,
}

/// The part of a request that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Variables,
    Body,
    /// The request has come to its end.
    Nothing,
    /// More comes, and is skipped.
    Skipped,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next bytes are a header.
    Header,
    /// The next bytes are content of a stream, then padding.
    Content(RecordHeader),
    /// The next bytes are a content that is read whole, then padding.
    Whole(RecordHeader),
    /// The next bytes are dropped.
    Skip(u32),
}

/// The most records without a use between the beginnings of two requests.
pub const MAX_USELESS: u32 = 1000;
/// The longest question about the server, in bytes.
const MAX_QUESTION: u16 = 1024;
/// The length of the content that begins a request.
const BEGIN_BYTES: u16 = 8;
/// The role of a server that answers requests.
const RESPONDER: u16 = 1;
/// The flag of a connection that stays open.
const KEEP_CONNECTION: u8 = 1;

// === impl RequestReader ===

impl RequestReader {
    /// A reader of requests with at most this number of bytes of variables.
    pub fn new(max_list: usize) -> RequestReader {
        RequestReader { state: State::Header, request: None, list: Vec::new(), max_list, useless: 0 }
    }

    /// The next piece of these bytes; `None` when more of them must come. Bytes that were read are taken out.
    ///
    /// # Errors
    /// When the web server breaks a rule of the protocol. The connection must be closed.
    pub fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<RequestPiece>, Violation> {
        loop {
            let piece = match self.state {
                State::Header => {
                    check_beginning(bytes)?;
                    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
                    let header = RecordHeader::decode(header)?;
                    bytes.advance(HEADER_BYTES);
                    let (state, piece) = self.check(header)?;
                    self.state = state;
                    piece
                }
                State::Skip(rest) => {
                    let length = bytes.len().min(rest as usize);
                    bytes.advance(length);
                    let rest = rest - length as u32;
                    if rest > 0 {
                        self.state = State::Skip(rest);
                        return Ok(None);
                    }
                    self.state = State::Header;
                    None
                }
                State::Whole(header) => {
                    if bytes.len() < header.content.into() {
                        return Ok(None);
                    }
                    let content = bytes.split_to(header.content.into()).freeze();
                    self.state = State::Skip(header.padding.into());
                    Some(self.whole(header, content)?)
                }
                State::Content(header) if header.content == 0 => {
                    self.state = State::Skip(header.padding.into());
                    self.stream_end(header.kind)
                }
                State::Content(header) => {
                    let length = bytes.len().min(header.content.into());
                    if length == 0 {
                        return Ok(None);
                    }
                    let part = bytes.split_to(length);
                    let rest = header.content - length as u16;
                    self.state = match rest {
                        0 => State::Skip(header.padding.into()),
                        _ => State::Content(RecordHeader { content: rest, ..header }),
                    };
                    self.stream_part(header.kind, part)
                }
            };
            if piece.is_some() {
                return Ok(piece);
            }
        }
    }

    /// The current request has ended: its other records are skipped, and another one may begin.
    pub fn request_ended(&mut self) {
        self.request = None;
        self.list = Vec::new();
        // The rest of a record of it has no reader any more.
        if let State::Content(header) = self.state {
            self.state = State::Skip(u32::from(header.content) + u32::from(header.padding));
        }
    }

    /// Whether there is a current request.
    pub fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// Whether the current request has come to its end.
    pub fn has_whole_request(&self) -> bool {
        self.request.is_some_and(|request| request.part == Part::Nothing)
    }

    /// The part that follows a header, and the piece that the header alone is.
    fn check(&mut self, header: RecordHeader) -> Result<(State, Option<RequestPiece>), Violation> {
        let RecordHeader { kind, request, content, padding } = header;
        let skipped = State::Skip(u32::from(content) + u32::from(padding));
        if request == CONNECTION {
            self.count_useless()?;
            return match kind {
                kind::GET_VALUES if content <= MAX_QUESTION => Ok((State::Whole(header), None)),
                kind::GET_VALUES => Err(Violation(format!("it asked a question of {content} bytes about the server"))),
                kind::BEGIN_REQUEST => Err(Violation("it began a request with the number 0".to_owned())),
                _ => Ok((skipped, Some(RequestPiece::UnknownType(kind)))),
            };
        }
        let current = self.request.filter(|current| current.number == request).map(|current| current.part);
        match (kind, current) {
            (kind::BEGIN_REQUEST, Some(_)) => Err(Violation(format!("it began the request number {request} twice"))),
            (kind::BEGIN_REQUEST, None) if content == BEGIN_BYTES => Ok((State::Whole(header), None)),
            (kind::BEGIN_REQUEST, None) => {
                Err(Violation(format!("it began a request with {content} bytes, in place of {BEGIN_BYTES}")))
            }
            (kind::ABORT_REQUEST, Some(_)) => Ok((skipped, Some(RequestPiece::Abort))),
            (kind::PARAMS, Some(Part::Variables)) | (kind::STDIN, Some(Part::Body)) => {
                Ok((State::Content(header), None))
            }
            (kind::STDIN, Some(Part::Variables)) => {
                Err(Violation("it sent a body before the end of the variables".to_owned()))
            }
            (kind::PARAMS, Some(Part::Body)) => Err(Violation("it sent variables after their end".to_owned())),
            (kind::STDIN, Some(Part::Nothing)) if content > 0 => {
                Err(Violation("it sent more of a body after its end".to_owned()))
            }
            // Of a request that is not there, or has ended; or of a type that this role has no use for.
            _ => {
                self.count_useless()?;
                Ok((skipped, None))
            }
        }
    }

    /// A content that was read whole.
    fn whole(&mut self, header: RecordHeader, content: Bytes) -> Result<RequestPiece, Violation> {
        if header.kind == kind::GET_VALUES {
            return Ok(RequestPiece::Question(content));
        }
        // Its length was checked with the header.
        let [role1, role0, flags, ..] = *content else {
            return Err(Violation("it began a request with too few bytes".to_owned()));
        };
        let (request, keeps_connection) = (header.request, flags & KEEP_CONNECTION != 0);
        let outcome = match u16::from_be_bytes([role1, role0]) {
            RESPONDER if self.request.is_none() => {
                self.request = Some(CurrentRequest { number: request, part: Part::Variables });
                self.useless = 0;
                return Ok(RequestPiece::Begin { request, keeps_connection });
            }
            RESPONDER => Outcome::NoMultiplexing,
            _ => Outcome::UnknownRole,
        };
        self.count_useless()?;
        Ok(RequestPiece::Refused { request, outcome, keeps_connection })
    }

    /// A part of a stream of the current request.
    fn stream_part(&mut self, kind: u8, part: BytesMut) -> Option<RequestPiece> {
        let request = self.request.as_mut()?;
        if kind == kind::STDIN {
            return Some(RequestPiece::Body(part.freeze()));
        }
        if request.part != Part::Variables {
            // The rest of the record with too many of them.
            return None;
        }
        if self.list.len() + part.len() > self.max_list {
            request.part = Part::Skipped;
            self.list = Vec::new();
            return Some(RequestPiece::TooManyVariables);
        }
        self.list.extend_from_slice(&part);
        None
    }

    /// The end of a stream of the current request.
    fn stream_end(&mut self, kind: u8) -> Option<RequestPiece> {
        let request = self.request.as_mut()?;
        if kind == kind::STDIN {
            request.part = Part::Nothing;
            return Some(RequestPiece::BodyEnd);
        }
        request.part = Part::Body;
        Some(RequestPiece::Variables(std::mem::take(&mut self.list)))
    }

    fn count_useless(&mut self) -> Result<(), Violation> {
        self.useless += 1;
        match self.useless {
            0..=MAX_USELESS => Ok(()),
            _ => Err(Violation(format!("it sent more than {MAX_USELESS} records without a use"))),
        }
    }
}

/// Bytes that begin with another version are wrong at once: no more may ever come.
fn check_beginning(bytes: &BytesMut) -> Result<(), Violation> {
    match bytes.first() {
        None | Some(&VERSION) => Ok(()),
        Some(_) => Err(Violation(format!("it sent something that is not FastCGI, beginning with {}", quoted(bytes)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parameters, abort_record, body_record};

    fn record(kind: u8, request: u16, content: &[u8]) -> Vec<u8> {
        let header = RecordHeader { kind, request, content: content.len() as u16, padding: 3 };
        [&header.encode()[..], content, &[0; 3]].concat()
    }

    fn begin(request: u16, role: u8, flags: u8) -> Vec<u8> {
        record(kind::BEGIN_REQUEST, request, &[0, role, flags, 0, 0, 0, 0, 0])
    }

    fn pieces(reader: &mut RequestReader, bytes: &[u8]) -> Result<Vec<RequestPiece>, String> {
        let mut bytes = BytesMut::from(bytes);
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next(&mut bytes).map_err(|violation| violation.to_string())? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    #[test]
    fn a_request_is_read_as_howdah_itself_sends_it() {
        let mut parameters = Parameters::default();
        parameters.add(b"A", b"b");
        let mut bytes = parameters.begin(true);
        body_record(&mut bytes, b"xy");
        body_record(&mut bytes, b"");
        let mut reader = RequestReader::new(100);
        let expected = [
            RequestPiece::Begin { request: 1, keeps_connection: true },
            RequestPiece::Variables(b"\x01\x01Ab".to_vec()),
            RequestPiece::Body(Bytes::from_static(b"xy")),
            RequestPiece::BodyEnd,
        ];
        assert_eq!(pieces(&mut reader, &bytes).expect("a request"), expected);
        assert!(reader.has_whole_request());
        reader.request_ended();
        assert_eq!(pieces(&mut reader, &bytes).expect("another one"), expected);
        assert_eq!(pieces(&mut reader, &abort_record()).expect("an abort"), [RequestPiece::Abort]);
    }

    #[test]
    fn another_request_meanwhile_is_refused_and_its_records_are_skipped() {
        let mut reader = RequestReader::new(100);
        let bytes = [
            begin(7, 1, 1),
            begin(8, 1, 0),
            record(kind::PARAMS, 8, b"\x01\x01Ab"),
            record(kind::PARAMS, 8, b""),
            record(kind::ABORT_REQUEST, 8, b""),
            record(kind::PARAMS, 7, b""),
            begin(9, 2, 1),
        ];
        let refused = |request, outcome, keeps_connection| RequestPiece::Refused { request, outcome, keeps_connection };
        let expected = [
            RequestPiece::Begin { request: 7, keeps_connection: true },
            refused(8, Outcome::NoMultiplexing, false),
            RequestPiece::Variables(Vec::new()),
            refused(9, Outcome::UnknownRole, true),
        ];
        assert_eq!(pieces(&mut reader, &bytes.concat()).expect("requests"), expected);
    }

    #[test]
    fn records_about_the_connection_need_no_request() {
        let mut reader = RequestReader::new(100);
        let bytes = [record(kind::GET_VALUES, 0, b"\x01\x00A"), record(99, 0, b"xyz"), begin(1, 1, 0)].concat();
        let expected = [
            RequestPiece::Question(Bytes::from_static(b"\x01\x00A")),
            RequestPiece::UnknownType(99),
            RequestPiece::Begin { request: 1, keeps_connection: false },
        ];
        assert_eq!(pieces(&mut reader, &bytes).expect("records"), expected);
    }

    #[test]
    fn too_many_variables_end_the_request() {
        let mut reader = RequestReader::new(10);
        let bytes = [begin(1, 1, 1), record(kind::PARAMS, 1, &[0; 6]), record(kind::PARAMS, 1, &[0; 6])].concat();
        let expected = [RequestPiece::Begin { request: 1, keeps_connection: true }, RequestPiece::TooManyVariables];
        assert_eq!(pieces(&mut reader, &bytes).expect("pieces"), expected);
        // The rest is skipped.
        let rest = [record(kind::PARAMS, 1, &[0; 600]), record(kind::PARAMS, 1, b"")].concat();
        assert_eq!(pieces(&mut reader, &rest).expect("the rest"), []);
    }

    #[test]
    fn the_rest_of_a_request_that_has_ended_is_skipped() {
        let mut reader = RequestReader::new(100);
        let body = record(kind::STDIN, 1, b"0123456789");
        let first = [&begin(1, 1, 1)[..], &record(kind::PARAMS, 1, b""), &body[..10]].concat();
        assert_eq!(pieces(&mut reader, &first).expect("pieces").len(), 3);
        reader.request_ended();
        let rest = [&body[10..], &record(kind::STDIN, 1, b""), &begin(1, 1, 1)].concat();
        let expected = [RequestPiece::Begin { request: 1, keeps_connection: true }];
        assert_eq!(pieces(&mut reader, &rest).expect("pieces"), expected);
    }

    #[test]
    fn a_broken_rule_is_named() {
        let params = record(kind::PARAMS, 1, b"");
        let end = record(kind::STDIN, 1, b"");
        let cases = [
            (b"GET / HTTP/1.1".to_vec(), "not FastCGI, beginning with \"GET / HTTP/1.1\""),
            (b"\x02".to_vec(), "not FastCGI"),
            (begin(0, 1, 0), "the number 0"),
            (record(kind::BEGIN_REQUEST, 1, b""), "with 0 bytes, in place of 8"),
            ([begin(1, 1, 0), begin(1, 1, 0)].concat(), "the request number 1 twice"),
            ([begin(1, 1, 0), end.clone()].concat(), "a body before the end of the variables"),
            ([begin(1, 1, 0), params.clone(), params.clone()].concat(), "variables after their end"),
            ([begin(1, 1, 0), params, end, record(kind::STDIN, 1, b"x")].concat(), "more of a body after its end"),
            (record(kind::GET_VALUES, 0, &[0; 2000]), "a question of 2000 bytes"),
            (record(kind::ABORT_REQUEST, 5, b"").repeat(1001), "more than 1000 records without a use"),
            (begin(5, 3, 1).repeat(1001), "more than 1000 records without a use"),
        ];
        for (bytes, expected) in cases {
            let problem = pieces(&mut RequestReader::new(100), &bytes).expect_err(expected);
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
