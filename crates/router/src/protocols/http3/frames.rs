//! The bytes of a client that h3 gets.
//!
//! h3 keeps a frame in memory until it is complete, whatever its length and its type are, and ignores unknown types only
//! then. Here, a head has a limit, other frames than bodies have a small one, and unknown frames are dropped as they
//! come. h3 looks at all the pieces of an incomplete frame when another one comes, and a piece keeps the whole packet in
//! memory: a head is collected here, and small pieces of bodies are copied. h3 takes an empty frame of a body, and a frame
//! that the stream's end cuts off, for the end of the body: the first is dropped, too, and the second is an error.
//! PRIORITY_UPDATE, which h3 does not know, is read here. Frames without a use also cost points of the connection's account
//! ([`clock`](crate::protocols::http3::clock)).

use crate::protocols::connection::limits::MAX_HEADERS;
use crate::protocols::connection::priority::{PriorityField, PriorityUpdate};
use crate::protocols::http3::field_count::has_more_fields;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// The frames of one stream.
pub struct Frames {
    state: State,
    /// Bytes for h3.
    ready: VecDeque<Bytes>,
    /// A head, or trailers, which are incomplete. h3 gets them as one piece.
    head: BytesMut,
    /// The length of its frame's type and length.
    head_begins: usize,
    /// The cost of the frames since the last look; less than nothing if they were of use.
    cost: i64,
    is_control: bool,
    /// The payload of a PRIORITY_UPDATE, as far as it has come.
    kept: Vec<u8>,
    updates: Vec<PriorityUpdate>,
}

/// Why nothing more is read of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The head, or the trailers, are longer than the limit, or have far too many fields.
    HeadTooLarge,
    /// Another frame is longer than it can be.
    TooLong,
    /// The stream has ended within a frame.
    Incomplete,
}

enum State {
    /// The type of a stream in one direction.
    StreamType(Prefix),
    /// The type and the length of a frame.
    FrameHeader(Prefix),
    /// The payload of a frame: how many bytes have not come, and their use.
    Payload(u64, Use),
    /// Bytes that are no frames: those of QPACK's streams, and of unknown ones.
    Opaque,
}

/// The use of a frame's payload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is collected.
    Head,
    /// h3 gets it as it comes.
    Passed,
    /// A stream's number, and its priority.
    Priority,
    Dropped,
}

/// Integers of variable length (RFC 9000, 16) that may be incomplete.
#[derive(Default)]
struct Prefix {
    bytes: [u8; 16],
    length: usize,
}

const CONTROL_STREAM: u64 = 0;
const DATA: u64 = 0;
const HEADERS: u64 = 1;
const SETTINGS: u64 = 4;
/// The types that HTTP/3 and HTTP/2 have defined: h3 knows which of them are an error (RFC 9114, 7.2.8).
const KNOWN: std::ops::RangeInclusive<u64> = 0..=9;
const MAX_PUSH_ID: u64 = 0xd;
/// That of a request (RFC 9218, 7.2).
const PRIORITY_UPDATE: u64 = 0xf0700;
/// A longer one is ignored.
const MAX_PRIORITY_UPDATE: u64 = 256;

/// A head in QPACK's form is seldom longer than in HTTP/1's. h3 itself limits what it stands for.
const MAX_HEAD_BYTES: u64 = 128 * 1024;
/// Heads with some more than [`MAX_HEADERS`] are answered 431.
const MAX_FIELDS: usize = 2 * MAX_HEADERS;
const MAX_FRAME_BYTES: u64 = 4096;
/// A frame of DATA with fewer bytes costs: more may come in a single large one.
const SMALL_DATA_BYTES: u64 = 64;
/// A smaller piece of a frame is copied.
const SMALL_PIECE_BYTES: usize = 4096;
/// For one point, this many bytes of a stream that is no request.
const OPAQUE_BYTES_PER_POINT: usize = 32;

// === impl Frames ===

impl Frames {
    /// Of a request.
    pub fn of_request() -> Frames {
        Frames::new(State::FrameHeader(Prefix::default()))
    }

    /// Of a stream from the client only.
    pub fn of_one_direction() -> Frames {
        Frames::new(State::StreamType(Prefix::default()))
    }

    fn new(state: State) -> Frames {
        let (ready, head, kept, updates) = Default::default();
        Frames { state, ready, head, head_begins: 0, cost: 0, is_control: false, kept, updates }
    }

    /// Bytes came.
    ///
    /// # Errors
    /// When a frame is too long.
    pub fn read(&mut self, mut bytes: Bytes) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Opaque => {
                    self.cost += (bytes.len() / OPAQUE_BYTES_PER_POINT + 1) as i64;
                    self.ready.push_back(std::mem::take(&mut bytes));
                }
                State::StreamType(prefix) => {
                    prefix.push(bytes.split_to(1)[0]);
                    let Some((kind, _)) = prefix.integer(0) else { continue };
                    self.ready.push_back(prefix.take());
                    self.cost += 8;
                    self.is_control = kind == CONTROL_STREAM;
                    self.state = if self.is_control { State::FrameHeader(Prefix::default()) } else { State::Opaque };
                }
                State::FrameHeader(prefix) => {
                    prefix.push(bytes.split_to(1)[0]);
                    let Some((kind, end)) = prefix.integer(0) else { continue };
                    let Some((length, _)) = prefix.integer(end) else { continue };
                    let header = prefix.take();
                    self.begin(kind, length, header)?;
                }
                State::Payload(missing, purpose) => {
                    let length = bytes.len().min(usize::try_from(*missing).unwrap_or(usize::MAX));
                    let payload = bytes.split_to(length);
                    *missing -= length as u64;
                    match purpose {
                        Use::Head => self.head.extend_from_slice(&payload),
                        Use::Passed if length < SMALL_PIECE_BYTES => {
                            self.ready.push_back(Bytes::copy_from_slice(&payload));
                        }
                        Use::Passed => self.ready.push_back(payload),
                        Use::Priority => self.kept.extend_from_slice(&payload),
                        Use::Dropped => {}
                    }
                    if *missing == 0 {
                        match purpose {
                            Use::Head => {
                                let head = std::mem::take(&mut self.head);
                                if has_more_fields(&head[self.head_begins..], MAX_FIELDS) {
                                    return Err(FrameError::HeadTooLarge);
                                }
                                self.ready.push_back(head.freeze());
                            }
                            Use::Priority => {
                                let kept = std::mem::take(&mut self.kept);
                                self.updates.extend(priority_update(&kept));
                            }
                            Use::Passed | Use::Dropped => {}
                        }
                        self.state = State::FrameHeader(Prefix::default());
                    }
                }
            }
        }
        Ok(())
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// When it ended within a frame.
    pub fn end(&mut self) -> Result<(), FrameError> {
        match &self.state {
            State::FrameHeader(prefix) | State::StreamType(prefix) if prefix.length == 0 => Ok(()),
            State::Opaque => Ok(()),
            _ => Err(FrameError::Incomplete),
        }
    }

    /// The next bytes for h3.
    pub fn next(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// How many bytes of a head have come that is not complete.
    pub fn open_head_bytes(&self) -> usize {
        self.head.len()
    }

    /// The cost of the frames that came since the last call.
    pub fn take_cost(&mut self) -> i64 {
        std::mem::take(&mut self.cost)
    }

    /// The priorities that came since the last call.
    pub fn take_priorities(&mut self) -> impl Iterator<Item = PriorityUpdate> {
        std::mem::take(&mut self.updates).into_iter()
    }

    fn begin(&mut self, kind: u64, length: u64, header: Bytes) -> Result<(), FrameError> {
        let is_known = KNOWN.contains(&kind) || kind == MAX_PUSH_ID;
        match kind {
            DATA if !self.is_control => {}
            HEADERS if !self.is_control && length > MAX_HEAD_BYTES => return Err(FrameError::HeadTooLarge),
            HEADERS if !self.is_control => {}
            _ if is_known && length > MAX_FRAME_BYTES => return Err(FrameError::TooLong),
            _ => {}
        }
        self.cost += match kind {
            DATA if length == 0 => 8,
            DATA if length < SMALL_DATA_BYTES => 1,
            DATA => -1,
            SETTINGS => 16,
            HEADERS => 0,
            _ => 2,
        };
        let purpose = match kind {
            HEADERS if !self.is_control && length > 0 => Use::Head,
            PRIORITY_UPDATE if self.is_control && length <= MAX_PRIORITY_UPDATE => Use::Priority,
            _ if is_known => Use::Passed,
            _ => Use::Dropped,
        };
        match purpose {
            Use::Head => {
                self.head_begins = header.len();
                self.head.extend_from_slice(&header);
            }
            Use::Passed if kind == DATA && length == 0 && !self.is_control => {}
            Use::Passed => self.ready.push_back(header),
            Use::Priority | Use::Dropped => {}
        }
        self.state = if length == 0 { State::FrameHeader(Prefix::default()) } else { State::Payload(length, purpose) };
        Ok(())
    }
}

/// The number of a stream, and its priority. A number of another kind of stream is ignored.
fn priority_update(payload: &[u8]) -> Option<PriorityUpdate> {
    let (number, field) = integer(payload)?;
    let stream = (number % 4 == 0).then_some(number)?;
    Some(PriorityUpdate { stream, field: PriorityField::parse(field) })
}

/// The integer that begins these bytes, and the rest; `None` if it is incomplete.
fn integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (encoded, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = encoded[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, rest))
}

// === impl Prefix ===

impl Prefix {
    /// Two integers have at most 16 bytes.
    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    /// The integer that begins here, and its end; `None` if it is incomplete.
    fn integer(&self, begin: usize) -> Option<(u64, usize)> {
        let (value, rest) = integer(&self.bytes[begin..self.length])?;
        Some((value, self.length - rest.len()))
    }

    fn take(&mut self) -> Bytes {
        let bytes = Bytes::copy_from_slice(&self.bytes[..self.length]);
        self.length = 0;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: u64) -> Vec<u8> {
        match value {
            0..0x40 => vec![value as u8],
            0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
            0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
            _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
        }
    }

    fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
        [encoded(kind), encoded(payload.len() as u64), payload.to_vec()].concat()
    }

    /// The bytes that h3 gets of these, which come in pieces of this size, and the cost.
    fn passed(mut frames: Frames, bytes: &[u8], size: usize) -> Result<(Vec<u8>, i64), FrameError> {
        for piece in bytes.chunks(size) {
            frames.read(Bytes::copy_from_slice(piece))?;
        }
        let ended = frames.end();
        let mut out = Vec::new();
        while let Some(bytes) = frames.next() {
            out.extend_from_slice(&bytes);
        }
        ended.map(|()| (out, frames.take_cost()))
    }

    #[test]
    fn unknown_frames_are_dropped_wherever_the_bytes_are_cut() {
        let head = frame(HEADERS, &[7; 300]);
        let body = frame(DATA, &[8; 70_000]);
        let unknown = [frame(0x21, b"grease"), frame(0x41, b"webtransport"), frame(0xf0700, b"priority")].concat();
        let all = [&unknown[..], &head, &unknown, &body, &unknown, &frame(DATA, &[])].concat();
        let expected = [head, body].concat();
        for size in [1, 2, 3, 7, 64, 1000, 100_000] {
            let (out, cost) = passed(Frames::of_request(), &all, size).unwrap();
            assert!(out == expected, "{size}");
            assert_eq!(cost, 9 * 2 - 1 + 8, "{size}");
        }
    }

    #[test]
    fn a_head_with_far_too_many_fields_is_refused() {
        let head = |fields: usize| frame(HEADERS, &[&[0, 0][..], &vec![0xdd; fields]].concat());
        for size in [1, 100, 10_000] {
            assert!(passed(Frames::of_request(), &head(MAX_FIELDS), size).is_ok());
            assert_eq!(passed(Frames::of_request(), &head(MAX_FIELDS + 1), size), Err(FrameError::HeadTooLarge));
        }
    }

    #[test]
    fn a_head_is_one_piece_whose_bytes_count_until_it_is_complete() {
        let mut frames = Frames::of_request();
        let head = frame(HEADERS, &[7; 1000]);
        for (count, byte) in head.iter().enumerate() {
            frames.read(Bytes::copy_from_slice(&[*byte])).unwrap();
            // The type and the length have three bytes.
            assert!(count < 3 || count == 1002 || frames.open_head_bytes() == count + 1, "{count}");
            assert!(count == 1002 || frames.next().is_none());
        }
        assert_eq!((frames.open_head_bytes(), frames.next()), (0, Some(Bytes::from(head))));
        frames.read(Bytes::from(frame(HEADERS, &[]))).unwrap();
        assert_eq!((frames.open_head_bytes(), frames.next()), (0, Some(Bytes::from_static(&[1, 0]))));
    }

    #[test]
    fn the_streams_of_a_connection() {
        let settings = frame(SETTINGS, &[1, 2]);
        let control = [&[0][..], &settings, &frame(0xf0700, b"x"), &frame(MAX_PUSH_ID, &[1])].concat();
        let expected = [&[0][..], &settings, &frame(MAX_PUSH_ID, &[1])].concat();
        assert_eq!(passed(Frames::of_one_direction(), &control, 1).unwrap().0, expected);
        let qpack = [&encoded(2)[..], &[0xff; 100]].concat();
        assert_eq!(passed(Frames::of_one_direction(), &qpack, 9).unwrap().0, qpack);
        // A head on the control stream is an error: h3 gets a short one, and refuses it.
        let head = [&[0][..], &encoded(HEADERS), &encoded(MAX_HEAD_BYTES)].concat();
        assert_eq!(passed(Frames::of_one_direction(), &head, 1), Err(FrameError::TooLong));
    }

    #[test]
    fn priorities_come_on_the_control_stream() {
        let update =
            |number: u64, field: &str| frame(PRIORITY_UPDATE, &[&encoded(number)[..], field.as_bytes()].concat());
        let all =
            [update(0, "u=1"), update(4000, "u=2, i"), update(3, "u=0"), frame(PRIORITY_UPDATE, &[0x40])].concat();
        let long = update(8, &format!("u=1, x={}", "1".repeat(300)));
        let expected = [(0, "u=1"), (4000, "u=2, i"), (12, "")]
            .map(|(stream, field)| PriorityUpdate { stream, field: PriorityField::parse(field.as_bytes()) });
        for size in [1, 5, 1000] {
            let mut frames = Frames::of_one_direction();
            let bytes = [&[0][..], &frame(SETTINGS, b""), &all, &long, &update(12, "")].concat();
            bytes.chunks(size).for_each(|piece| frames.read(Bytes::copy_from_slice(piece)).unwrap());
            assert_eq!(frames.take_priorities().collect::<Vec<_>>(), expected, "{size}");
        }
        let mut request = Frames::of_request();
        request.read(Bytes::from(update(0, "u=1"))).unwrap();
        assert_eq!(request.take_priorities().count(), 0);
    }

    #[test]
    fn a_frame_has_a_limit() {
        let begun = |kind, length| passed(Frames::of_request(), &[encoded(kind), encoded(length)].concat(), 1);
        assert_eq!(begun(HEADERS, MAX_HEAD_BYTES), Err(FrameError::Incomplete));
        assert_eq!(begun(HEADERS, MAX_HEAD_BYTES + 1), Err(FrameError::HeadTooLarge));
        assert_eq!(begun(SETTINGS, MAX_FRAME_BYTES + 1), Err(FrameError::TooLong));
        assert_eq!(
            (begun(DATA, 1 << 60), begun(0x21, 1 << 60)),
            (Err(FrameError::Incomplete), Err(FrameError::Incomplete))
        );
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        // A generator of ours: the test is the same each time.
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for round in 0..20_000 {
            let bytes: Vec<u8> =
                (0..random() % 64).map(|_| if random() % 3 == 0 { random() as u8 } else { 1 }).collect();
            let make = if round % 2 == 0 { Frames::of_request } else { Frames::of_one_direction };
            let whole = passed(make(), &bytes, 64);
            assert_eq!(passed(make(), &bytes, 1 + random() % 5).map(|it| it.0), whole.map(|it| it.0), "{bytes:?}");
        }
    }

    #[test]
    fn an_end_within_a_frame_is_an_error() {
        for bytes in [&[0x40][..], &[0], &[0, 1], &[0x21, 2, 0]] {
            assert_eq!(passed(Frames::of_request(), bytes, 1), Err(FrameError::Incomplete), "{bytes:?}");
        }
        assert_eq!(passed(Frames::of_request(), &frame(DATA, b"x"), 1).unwrap().0, frame(DATA, b"x"));
    }
}
