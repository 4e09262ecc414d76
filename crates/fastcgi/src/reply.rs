//! The records of a server: its response to a request, the end of the request, and answers about the server itself.

use crate::answer::Outcome;
use crate::name_value;
use crate::record::{CONNECTION, HEADER_BYTES, MAX_CONTENT, RecordHeader, kind};
use bytes::BytesMut;

/// The length of a record that ends a request, in bytes.
const END_BYTES: usize = 8;

/// Appends a part of the response, in as many records as it needs.
pub fn response_part(out: &mut BytesMut, request: u16, part: &[u8]) {
    for content in part.chunks(MAX_CONTENT) {
        record(out, kind::STDOUT, request, content);
    }
}

/// Appends the end of a response, and of its request.
pub fn response_end(out: &mut BytesMut, request: u16) {
    record(out, kind::STDOUT, request, b"");
    request_end(out, request, Outcome::Complete);
}

/// Appends the end of a request, which may have no response.
pub fn request_end(out: &mut BytesMut, request: u16, outcome: Outcome) {
    let outcome = match outcome {
        Outcome::Complete => 0,
        Outcome::NoMultiplexing => 1,
        Outcome::Overloaded => 2,
        Outcome::UnknownRole => 3,
    };
    let content: [u8; END_BYTES] = [0, 0, 0, 0, outcome, 0, 0, 0];
    record(out, kind::END_REQUEST, request, &content);
}

/// Appends the answer to a question about the server: the values that it asks for, as far as there are any. Each request
/// has a connection of its own, so that both limits are the same number.
pub fn values(out: &mut BytesMut, question: &[u8], connections: u64) {
    let connections = connections.to_string();
    let mut known = [
        ("FCGI_MAX_CONNS", Some(connections.as_str())),
        ("FCGI_MAX_REQS", Some(connections.as_str())),
        ("FCGI_MPXS_CONNS", Some("0")),
    ];
    let mut list = Vec::new();
    for (name, _) in name_value::pairs(question).flatten() {
        let asked = known.iter_mut().find(|(known, _)| known.as_bytes() == name);
        // Each is answered once: an answer is not longer than the three.
        if let Some((known, value)) = asked
            && let Some(value) = value.take()
        {
            name_value::write(&mut list, known.as_bytes(), value.as_bytes());
        }
    }
    record(out, kind::GET_VALUES_RESULT, CONNECTION, &list);
}

/// Appends the answer to a record about the connection of a type that is not known.
pub fn unknown_type(out: &mut BytesMut, unknown: u8) {
    record(out, kind::UNKNOWN_TYPE, CONNECTION, &[unknown, 0, 0, 0, 0, 0, 0, 0]);
}

fn record(out: &mut BytesMut, kind: u8, request: u16, content: &[u8]) {
    debug_assert!(content.len() <= MAX_CONTENT, "the content is in parts");
    let header = RecordHeader { kind, request, content: content.len() as u16, padding: 0 };
    out.reserve(HEADER_BYTES + content.len());
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_an_end() {
        let mut out = BytesMut::new();
        response_part(&mut out, 0x0102, b"ab");
        response_end(&mut out, 0x0102);
        let expected = [
            &[1, 6, 1, 2, 0, 2, 0, 0, b'a', b'b'][..],
            &[1, 6, 1, 2, 0, 0, 0, 0],
            &[1, 3, 1, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_long_part_has_several_records_and_an_empty_one_none() {
        let mut out = BytesMut::new();
        response_part(&mut out, 1, &vec![b'x'; MAX_CONTENT + 1]);
        assert_eq!(out.len(), MAX_CONTENT + 1 + 2 * HEADER_BYTES);
        out.clear();
        response_part(&mut out, 1, b"");
        assert!(out.is_empty(), "an empty record would end the response");
    }

    #[test]
    fn known_values_are_answered_once() {
        let mut question = Vec::new();
        for name in ["FCGI_MPXS_CONNS", "OTHER", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS"] {
            name_value::write(&mut question, name.as_bytes(), b"");
        }
        question.push(9); // the list breaks off
        let mut out = BytesMut::new();
        values(&mut out, &question, 100);
        let list: Vec<_> = name_value::pairs(&out[HEADER_BYTES..]).flatten().collect();
        assert_eq!(list, [(&b"FCGI_MPXS_CONNS"[..], &b"0"[..]), (b"FCGI_MAX_REQS", b"100")]);
        assert_eq!(out[..4], [1, 10, 0, 0]);
    }

    #[test]
    fn refusals_name_their_reason() {
        let mut out = BytesMut::new();
        request_end(&mut out, 2, Outcome::NoMultiplexing);
        request_end(&mut out, 3, Outcome::UnknownRole);
        request_end(&mut out, 4, Outcome::Overloaded);
        unknown_type(&mut out, 77);
        let statuses: Vec<_> = out.chunks(16).take(3).map(|record| (record[3], record[12])).collect();
        assert_eq!(statuses, [(2, 1), (3, 3), (4, 2)]);
        assert_eq!(out[48..], [1, 11, 0, 0, 0, 8, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
    }
}
