//! Random and damaged answers: each is read to its end or is a violation, whatever the server sends, and the reader keeps no
//! more of it than a header and the end of a request.

use bytes::BytesMut;
use howdah_fastcgi::answer::{AnswerPiece, AnswerReader};
use howdah_fastcgi::record::RecordHeader;
use howdah_fastcgi::{head, name_value};
use proptest::prelude::*;

/// The most bytes that the reader leaves in the buffer: an incomplete header, or an incomplete end with its padding.
const KEPT: usize = 8 + 255;

fn records() -> impl Strategy<Value = Vec<u8>> {
    let content = prop_oneof![
        Just(b"Status: 200 OK\r\n\r\n".to_vec()),
        Just(vec![0; 8]),
        prop::collection::vec(any::<u8>(), 0..50),
    ];
    let record = (any::<u8>(), any::<u8>(), content, any::<u8>(), any::<u8>()).prop_map(
        |(kind, request, content, padding, luck)| {
            // Most records are nearly right.
            let kind = if luck < 230 { [3, 6, 6, 6, 7][usize::from(kind) % 5] } else { kind };
            let request = if luck < 240 { 1 } else { request.into() };
            let length = if luck < 250 { content.len() as u16 } else { u16::from(luck) << 8 };
            let header = RecordHeader { kind, request, content: length, padding };
            [&header.encode()[..], &content, &vec![0; padding.into()]].concat()
        },
    );
    prop::collection::vec(record, 0..8).prop_map(|records| records.concat())
}

/// The bytes of the response that were read in these portions, and whether the answer was wrong.
fn read(bytes: &[u8], portion: usize) -> (Vec<u8>, bool) {
    let (mut reader, mut buffer, mut response) = (AnswerReader::default(), BytesMut::new(), Vec::new());
    for portion in bytes.chunks(portion) {
        buffer.extend_from_slice(portion);
        loop {
            assert!(!reader.has_ended() || matches!(reader.next(&mut buffer), Ok(None)));
            match reader.next(&mut buffer) {
                Ok(Some(AnswerPiece::Response(part))) => {
                    assert!(!part.is_empty());
                    response.extend_from_slice(&part);
                }
                Ok(Some(AnswerPiece::Messages(part))) => assert!(!part.is_empty()),
                Ok(Some(AnswerPiece::End(_))) => assert!(reader.has_ended()),
                Ok(None) => break,
                Err(_) => return (response, true),
            }
        }
        assert!(reader.has_ended() || buffer.len() <= KEPT, "{} bytes are kept", buffer.len());
    }
    (response, false)
}

proptest! {
    #[test]
    fn an_answer_of_any_bytes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), portion in 1_usize..100) {
        read(&bytes, portion);
    }

    #[test]
    fn an_answer_of_any_records_is_the_same_in_any_portions(
        bytes in records(), portion in 1_usize..100, damaged in any::<prop::sample::Index>()
    ) {
        prop_assert_eq!(read(&bytes, portion), read(&bytes, 1));
        let mut bytes = bytes;
        if !bytes.is_empty() {
            let index = damaged.index(bytes.len());
            bytes[index] ^= 0x10;
            read(&bytes, portion);
        }
    }

    #[test]
    fn a_head_of_any_bytes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..300), longest in 0_usize..400) {
        if let Ok(Some((head, length))) = head::parse(&bytes, longest) {
            prop_assert!(length <= bytes.len() && length <= longest && head.status < 1000);
            prop_assert!(head.fields().all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
        }
    }

    #[test]
    fn a_list_of_any_bytes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let pairs: Vec<_> = name_value::pairs(&bytes).collect();
        prop_assert!(pairs.iter().rev().skip(1).all(Option::is_some), "nothing follows a broken pair");
    }

    #[test]
    fn a_list_is_read_as_it_was_written(written in prop::collection::vec((".{0,200}", ".{0,200}"), 0..10)) {
        let mut list = Vec::new();
        written.iter().for_each(|(name, value)| name_value::write(&mut list, name.as_bytes(), value.as_bytes()));
        let read: Vec<_> = name_value::pairs(&list).collect();
        let expected: Vec<_> = written.iter().map(|(name, value)| Some((name.as_bytes(), value.as_bytes()))).collect();
        prop_assert_eq!(read, expected);
    }
}
