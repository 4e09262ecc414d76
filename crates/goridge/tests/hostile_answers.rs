//! Random and damaged answers: each is read to its end or is a violation, whatever the worker sends, and the reader
//! keeps no more of it than a context.

use bytes::BytesMut;
use howdah_goridge::answer::{AnswerPiece, AnswerReader, MAX_CONTEXT};
use howdah_goridge::frame::{FrameHeader, flag};
use howdah_goridge::handshake::HandshakeAnswer;
use proptest::prelude::*;

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let context = prop_oneof![
        Just(r#"{"status":200,"headers":{"A":["b"]}}"#.to_owned()),
        Just(r#"{"stop":true}"#.to_owned()),
        Just(String::new()),
        // Status 200, and a header, as protobuf.
        Just("\x08\x48\x12\x08\x0a\x01A\x12\x03\x0a\x01b".to_owned()),
        "\\PC{0,20}",
        "[\\x00-\\x1a]{0,20}",
    ];
    let frame = (any::<u8>(), any::<u8>(), 0_u8..4, context, prop::collection::vec(any::<u8>(), 0..50), any::<u8>());
    let frame = frame.prop_map(|(flags, stream, options, context, body, kind)| {
        // Most frames are nearly right.
        let (flags, stream) = (if kind < 200 { flags & flag::PROTO } else { flags }, stream & 0x0f);
        let options = if kind < 220 { 1 } else { options };
        let payload = if kind < 240 { (context.len() + body.len()) as u32 } else { u32::from(kind) << 24 };
        let header = FrameHeader { options, flags, stream, payload }.encode();
        [&header, &(context.len() as u32).to_le_bytes()[..], context.as_bytes(), &body].concat()
    });
    prop::collection::vec(frame, 0..6).prop_map(|frames| frames.concat())
}

fn read(bytes: &[u8], portion: usize) {
    let (mut reader, mut buffer) = (AnswerReader::default(), BytesMut::new());
    let (mut heads, mut has_ended) = (0, false);
    for portion in bytes.chunks(portion) {
        buffer.extend_from_slice(portion);
        loop {
            match reader.next(&mut buffer) {
                Ok(Some(AnswerPiece::Head(_))) => heads += 1,
                Ok(Some(AnswerPiece::Body(_))) => assert!(heads == 1 && !has_ended, "a body before its head"),
                Ok(Some(AnswerPiece::Interim(_))) => assert!(heads == 0, "an interim response after the head"),
                Ok(Some(AnswerPiece::Ping)) => {}
                Ok(Some(AnswerPiece::Error(_) | AnswerPiece::Restart | AnswerPiece::End)) => has_ended = true,
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(heads <= 1 && has_ended == reader.has_ended());
        assert!(has_ended || buffer.len() <= MAX_CONTEXT as usize + 16);
    }
}

proptest! {
    #[test]
    fn an_answer_of_any_bytes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), portion in 1_usize..100) {
        read(&bytes, portion);
    }

    #[test]
    fn an_answer_of_any_frames_is_read(bytes in frames(), portion in 1_usize..100, damaged in any::<prop::sample::Index>()) {
        read(&bytes, portion);
        let mut bytes = bytes;
        if !bytes.is_empty() {
            let index = damaged.index(bytes.len());
            bytes[index] ^= 0x10;
            read(&bytes, portion);
        }
    }

    #[test]
    fn a_handshake_of_any_bytes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut answer = HandshakeAnswer::default();
        for byte in bytes {
            match answer.missing() {
                Ok(missing) if missing > 0 => answer.push(&[byte]),
                _ => break,
            }
        }
    }
}
