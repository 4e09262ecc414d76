//! The records of a request: its beginning, its variables, its body, and its early end.

use crate::name_value;
use crate::record::{HEADER_BYTES, MAX_CONTENT, REQUEST, RecordHeader, kind};

/// The role of a server that answers requests.
const RESPONDER: u16 = 1;
/// The server keeps the connection open after the request.
const KEEP_CONNECTION: u8 = 1;

/// Collects the variables of a request, and makes the records before its body.
#[derive(Debug, Default)]
pub struct Parameters {
    list: Vec<u8>,
}

// === impl Parameters ===

impl Parameters {
    /// Adds a variable.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        name_value::write(&mut self.list, name, value);
    }

    /// The length of the list, in bytes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no variable.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The records that begin a request, up to its body. `keeps_connection` asks the server to keep the connection open
    /// after the request.
    pub fn begin(&self, keeps_connection: bool) -> Vec<u8> {
        let [role1, role0] = RESPONDER.to_be_bytes();
        let flags = if keeps_connection { KEEP_CONNECTION } else { 0 };
        let records = self.list.len() / MAX_CONTENT + 3;
        let mut bytes = Vec::with_capacity(self.list.len() + records * HEADER_BYTES + 8);
        record(&mut bytes, kind::BEGIN_REQUEST, &[role1, role0, flags, 0, 0, 0, 0, 0]);
        self.list.chunks(MAX_CONTENT).for_each(|part| record(&mut bytes, kind::PARAMS, part));
        record(&mut bytes, kind::PARAMS, b"");
        bytes
    }
}

/// Appends a part of the body, which is not longer than [`MAX_CONTENT`]; an empty part ends the body.
pub fn body_record(bytes: &mut Vec<u8>, part: &[u8]) {
    record(bytes, kind::STDIN, part);
}

/// The header of a record with a part of the body of this length.
pub fn body_header(length: u16) -> [u8; HEADER_BYTES] {
    RecordHeader { kind: kind::STDIN, request: REQUEST, content: length, padding: 0 }.encode()
}

/// The record that gives a request up.
pub fn abort_record() -> [u8; HEADER_BYTES] {
    RecordHeader { kind: kind::ABORT_REQUEST, request: REQUEST, content: 0, padding: 0 }.encode()
}

fn record(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    debug_assert!(content.len() <= MAX_CONTENT, "the content is in parts");
    let header = RecordHeader { kind, request: REQUEST, content: content.len() as u16, padding: 0 };
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_its_role_and_its_variables() {
        let mut parameters = Parameters::default();
        parameters.add(b"A", b"b");
        let begin = |flags| [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, flags, 0, 0, 0, 0, 0];
        let variables = [&[1, 4, 0, 1, 0, 4, 0, 0, 1, 1, b'A', b'b'][..], &[1, 4, 0, 1, 0, 0, 0, 0]].concat();
        assert_eq!(parameters.begin(true), [&begin(1)[..], &variables].concat());
        assert_eq!(parameters.begin(false), [&begin(0)[..], &variables].concat());
    }

    #[test]
    fn long_variables_have_several_records() {
        let mut parameters = Parameters::default();
        parameters.add(b"HTTP_COOKIE", &vec![b'x'; 2 * MAX_CONTENT]);
        let bytes = parameters.begin(true);
        let (mut lengths, mut at) = (Vec::new(), 0);
        while let Some(header) = bytes[at..].first_chunk::<HEADER_BYTES>() {
            let header = RecordHeader::decode(header).expect("a record");
            lengths.push((header.kind, usize::from(header.content)));
            at += HEADER_BYTES + usize::from(header.content);
        }
        let rest = parameters.len() - 2 * MAX_CONTENT;
        let expected = [(1, 8), (4, MAX_CONTENT), (4, MAX_CONTENT), (4, rest), (4, 0)];
        assert_eq!((lengths, at), (expected.to_vec(), bytes.len()));
    }

    #[test]
    fn a_body_ends_with_an_empty_record() {
        let mut bytes = Vec::new();
        body_record(&mut bytes, b"ab");
        body_record(&mut bytes, b"");
        assert_eq!(bytes, [&body_header(2)[..], b"ab", &body_header(0)].concat());
        assert_eq!(abort_record(), [1, 2, 0, 1, 0, 0, 0, 0]);
    }
}
