//! The header of a frame, and the frames that howdah sends.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | the version, 1, and the length of the header in 32-bit words: 3, and one for each option |
//! | 1 | flags: [`flag`] |
//! | 2 to 5 | the length of the payload |
//! | 6 to 9 | CRC-32 of the bytes 0 to 5 |
//! | 10 | flags of streams: [`stream`] |
//! | 11 | 0 |
//!
//! All numbers are little endian. The options and the payload follow.

use std::fmt;

/// The length of a header without options, in bytes.
pub const HEADER_BYTES: usize = 12;
/// The length of an option, in bytes.
pub const OPTION_BYTES: usize = 4;

/// The flags of a frame.
pub mod flag {
    /// A control frame: its payload is JSON, and no data of a request.
    pub const CONTROL: u8 = 0x01;
    /// The context is JSON.
    pub const JSON: u8 = 0x08;
    /// The payload is the text of an error.
    pub const ERROR: u8 = 0x40;
    /// The context is a message of protobuf.
    pub const PROTO: u8 = 0x80;
}

/// The flags of a frame of a streamed response.
pub mod stream {
    /// More frames of this response follow.
    pub const MORE: u8 = 0x01;
    /// From howdah: the client has left, stop the stream.
    pub const STOP: u8 = 0x02;
    /// From the worker: it wants a `PONG`, and looks for a `STOP`.
    pub const PING: u8 = 0x04;
    /// From howdah: the answer to a `PING`.
    pub const PONG: u8 = 0x08;
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The number of options.
    pub options: u8,
    /// Its [`flag`]s.
    pub flags: u8,
    /// Its flags of [`stream`]s.
    pub stream: u8,
    /// The length of the payload, in bytes.
    pub payload: u32,
}

/// A rule of the protocol that a worker broke. It prints as a phrase about the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// The version of the frames.
const VERSION: u8 = 1;
/// The length of a header without options, in words.
const HEADER_WORDS: u8 = 3;
/// The most options that a header can have.
const MAX_OPTIONS: u8 = 10;
/// How much of a text of a worker is quoted, in characters.
const QUOTED_CHARS: usize = 200;

// === impl FrameHeader ===

impl FrameHeader {
    /// The header of these bytes.
    ///
    /// # Errors
    /// When the version, the number of options or the checksum is wrong.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, Violation> {
        let (version, words) = (bytes[0] >> 4, bytes[0] & 0x0f);
        let options = words.checked_sub(HEADER_WORDS).filter(|options| *options <= MAX_OPTIONS);
        let (Some(options), VERSION) = (options, version) else {
            return Err(not_a_frame(bytes));
        };
        let checksum = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
        if checksum != crc32(&bytes[..6]) {
            return Err(not_a_frame(bytes));
        }
        let payload = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        Ok(FrameHeader { options, flags: bytes[1], stream: bytes[10], payload })
    }

    /// The bytes of the header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | (HEADER_WORDS + self.options);
        bytes[1] = self.flags;
        bytes[2..6].copy_from_slice(&self.payload.to_le_bytes());
        let checksum = crc32(&bytes[..6]);
        bytes[6..10].copy_from_slice(&checksum.to_le_bytes());
        bytes[10] = self.stream;
        bytes
    }
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of a data frame: its header, and the option with the length of the context. The context and the body
/// follow.
pub fn data_frame(flags: u8, context: u32, payload: u32) -> [u8; HEADER_BYTES + OPTION_BYTES] {
    let mut bytes = [0; HEADER_BYTES + OPTION_BYTES];
    let header = FrameHeader { options: 1, flags, stream: 0, payload };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    bytes[HEADER_BYTES..].copy_from_slice(&context.to_le_bytes());
    bytes
}

/// A control frame with this JSON.
pub fn control_frame(json: &str) -> Vec<u8> {
    let flags = flag::CONTROL | flag::JSON;
    let header = FrameHeader { options: 0, flags, stream: 0, payload: json.len() as u32 };
    [&header.encode(), json.as_bytes()].concat()
}

/// The frame that orders a worker to exit.
pub fn exit_frame() -> Vec<u8> {
    control_frame(r#"{"stop":true}"#)
}

/// The answer to a `PING`.
pub fn pong_frame() -> [u8; HEADER_BYTES] {
    FrameHeader { options: 0, flags: 0, stream: stream::PONG, payload: 0 }.encode()
}

/// The frame that ends the stream of a client that has left.
pub fn stop_stream_frame() -> [u8; HEADER_BYTES] {
    FrameHeader { options: 0, flags: 0, stream: stream::STOP, payload: 0 }.encode()
}

/// A text of a worker for a log line: its beginning, without control characters.
pub fn quoted(text: &[u8]) -> String {
    format!("{:?}", shortened(&String::from_utf8_lossy(text)))
}

/// The beginning of a text, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    text.trim().chars().take(QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Mostly, this is the text of a `var_dump()` or of an error message.
fn not_a_frame(bytes: &[u8]) -> Violation {
    Violation(format!("it wrote something that is not a frame, beginning with {}", quoted(bytes)))
}

/// CRC-32 (IEEE). It covers six bytes, which are not worth a table.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn frames_are_those_of_roadrunner() {
        // As they were recorded between rr 2025.1 and its PHP library.
        assert_eq!(
            control_frame(r#"{"pid":1}"#),
            [bytes("13090900 00006dfc 98440000"), br#"{"pid":1}"#.into()].concat()
        );
        assert_eq!(exit_frame(), [bytes("13090d00 00003a6b facb0000"), br#"{"stop":true}"#.into()].concat());
        assert_eq!(pong_frame(), *bytes("13000000 000096d1 80340800"));
        assert_eq!(stop_stream_frame(), *bytes("13000000 000096d1 80340200"));
        assert_eq!(data_frame(flag::PROTO, 0x27, 0x51), *bytes("14805100 00007b39 d2eb0000 27000000"));
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = FrameHeader { options: 10, flags: 0xff, stream: 5, payload: u32::MAX };
        assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
        for (index, bit) in (0..10).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
            let mut damaged = header.encode();
            damaged[index] ^= 1 << bit;
            assert!(FrameHeader::decode(&damaged).is_err(), "bit {bit} of byte {index}");
        }
        assert!(FrameHeader::decode(b"PHP Warning:").expect_err("a text").0.ends_with(r#""PHP Warning:""#));
    }
}
