//! Random and damaged requests: each is read, or is a violation, whatever a web server sends, and the reader keeps no more of
//! it than a header, a question, and a list up to its limit. `HOWDAH_FUZZ_SECONDS=600` runs new ones for ten minutes.

use bytes::BytesMut;
use howdah_fastcgi::name_value;
use howdah_fastcgi::record::RecordHeader;
use howdah_fastcgi::reply;
use howdah_fastcgi::request_reader::{MAX_USELESS, RequestPiece, RequestReader};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::time::{Duration, Instant};

/// The most bytes of variables.
const MAX_LIST: usize = 300;
/// The most bytes that the reader leaves in the buffer: an incomplete header, or an incomplete question.
const KEPT: usize = 1024;

fn records() -> impl Strategy<Value = Vec<u8>> {
    let content = prop_oneof![
        Just(vec![0, 1, 1, 0, 0, 0, 0, 0]),
        Just(Vec::new()),
        Just(b"\x01\x01Ab".to_vec()),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    let record = (any::<u8>(), any::<u8>(), content, any::<u8>(), any::<u8>()).prop_map(
        |(kind, request, content, padding, luck)| {
            // Most records are nearly right.
            let kind = if luck < 230 { [1, 1, 2, 4, 4, 4, 5, 5, 5, 9][usize::from(kind) % 10] } else { kind };
            let request = if luck < 220 { 1 } else { u16::from(request) % 3 };
            let content = if kind == 1 { vec![0, 1, luck % 2, 0, 0, 0, 0, 0] } else { content };
            let length = if luck < 250 { content.len() as u16 } else { u16::from(luck) << 8 };
            let header = RecordHeader { kind, request, content: length, padding };
            [&header.encode()[..], &content, &vec![0; padding.into()]].concat()
        },
    );
    prop::collection::vec(record, 0..12).prop_map(|records| records.concat())
}

/// The pieces of these bytes in these portions, with the parts of a body joined; and whether a rule was broken. A request
/// ends with its abort, or when its body has come.
fn read(bytes: &[u8], portion: usize) -> (Vec<RequestPiece>, bool) {
    let (mut reader, mut buffer) = (RequestReader::new(MAX_LIST), BytesMut::new());
    let mut pieces: Vec<RequestPiece> = Vec::new();
    for portion in bytes.chunks(portion) {
        buffer.extend_from_slice(portion);
        loop {
            let piece = match reader.next(&mut buffer) {
                Ok(None) => break,
                Ok(Some(piece)) => piece,
                Err(_) => return (pieces, true),
            };
            match &piece {
                RequestPiece::Begin { .. } => assert!(reader.has_request() && !reader.has_whole_request()),
                RequestPiece::Variables(list) => assert!(list.len() <= MAX_LIST),
                RequestPiece::Body(part) => assert!(!part.is_empty() && reader.has_request()),
                RequestPiece::BodyEnd => assert!(reader.has_whole_request()),
                RequestPiece::Question(question) => {
                    let mut out = BytesMut::new();
                    reply::values(&mut out, question, u64::MAX);
                    assert!(out.len() < 200, "an answer is short");
                }
                _ => {}
            }
            if matches!(piece, RequestPiece::BodyEnd | RequestPiece::Abort | RequestPiece::TooManyVariables) {
                reader.request_ended();
            }
            match (pieces.last_mut(), piece) {
                (Some(RequestPiece::Body(body)), RequestPiece::Body(part)) => {
                    *body = [&body[..], &part].concat().into()
                }
                (_, piece) => pieces.push(piece),
            }
        }
        assert!(buffer.len() <= KEPT, "{} bytes are kept", buffer.len());
    }
    (pieces, false)
}

fn config() -> Config {
    match std::env::var("HOWDAH_FUZZ_SECONDS") {
        // Without an end of its own: `until` stops it.
        Ok(_) => Config { cases: u32::MAX, ..Config::default() },
        Err(_) => Config::default(),
    }
}

/// Runs a test with random inputs, for as long as the environment asks.
fn check<S: Strategy>(strategy: S, test: impl Fn(S::Value)) {
    let seconds = std::env::var("HOWDAH_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(3600));
    let result = TestRunner::new(config()).run(&strategy, |input| {
        if Instant::now() < until {
            test(input);
            return Ok(());
        }
        Err(TestCaseError::reject("the time is over"))
    });
    match result {
        Ok(()) | Err(proptest::test_runner::TestError::Abort(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_request_of_any_bytes_is_read() {
    let bytes = prop::collection::vec(any::<u8>(), 0..2000);
    check((bytes, 1_usize..100), |(mut bytes, portion)| {
        read(&bytes, portion);
        // Nearly all of these are no FastCGI: with the right version, more is read.
        bytes.iter_mut().step_by(8).for_each(|byte| *byte = 1);
        read(&bytes, portion);
    });
}

#[test]
fn a_request_of_any_records_is_the_same_in_any_portions() {
    check((records(), 1_usize..100, any::<prop::sample::Index>(), 0_u8..8), |(mut bytes, portion, index, bit)| {
        assert_eq!(read(&bytes, portion), read(&bytes, 1));
        if !bytes.is_empty() {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
            assert_eq!(read(&bytes, portion), read(&bytes, 1));
        }
    });
}

#[test]
fn a_flood_without_a_use_ends() {
    for kind in 0..=255_u8 {
        let record = |request| RecordHeader { kind, request, content: 0, padding: 0 }.encode();
        for request in [0, 1, 2] {
            let flood = record(request).repeat(MAX_USELESS as usize + 2);
            assert!(read(&flood, 1000).1, "type {kind}, request {request}");
        }
    }
}

#[test]
fn a_list_breaks_off_at_most_once() {
    check(prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        let pairs: Vec<_> = name_value::pairs(&bytes).collect();
        assert!(pairs.iter().rev().skip(1).all(Option::is_some));
    });
}
