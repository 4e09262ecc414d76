//! Counts the frames of a client, so that frames without a use do not cost without a limit.
//!
//! h2 bounds the memory that frames take. It does not bound their number: a client could send SETTINGS, PING, PRIORITY
//! and WINDOW_UPDATE as fast as the network carries them, or begin and reset requests (CVE-2023-44487). Each such frame
//! takes points from an account; requests, bytes of responses, and time add some. A client whose account is empty loses
//! its connection. The usual behaviour of browsers, proxies and gRPC stays far away from it.
//!
//! It also notices whether a head is incomplete: HEADERS or CONTINUATION without END_HEADERS, or a part of one. It keeps what
//! h2 does not pass on: the window of the connection, the priorities of PRIORITY_UPDATE (RFC 9218, 7.1), and the size of trailers,
//! which h2 keeps until the body before them is read.

use crate::protocols::connection::account::Account;
use crate::protocols::connection::priority::{PriorityField, PriorityUpdate};
use crate::protocols::connection::turn::WORK_OF_TURN;

/// The frames of one connection, as they are read.
pub struct Frames {
    state: State,
    account: Account,
    /// How many bytes of responses were not credited.
    sent: u64,
    /// Whether the frames of a head have begun, and none has ended it.
    in_head: bool,
    /// The work of the frames that came in this turn: each byte of a head may stand for a header of thousands of bytes.
    work: usize,
    /// The payload of a frame that is read here, as far as it has come.
    kept: Vec<u8>,
    /// By how many bytes the connection's window has grown.
    window: u64,
    /// Priorities that came.
    updates: Vec<PriorityUpdate>,
    /// The last stream that has begun.
    last_stream: u32,
    /// The stream of the head, if it is trailers.
    trailers_of: Option<u32>,
    /// The bytes of trailers that came, by stream.
    trailers: Vec<(u32, usize)>,
}

enum State {
    /// How many bytes of the client's preface have not come.
    Preface(usize),
    /// A frame's header, and how many bytes of it have come.
    Header([u8; HEADER_BYTES], usize),
    /// The payload of a frame: how many bytes have not come, and what it is.
    Payload(usize, Payload),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// A part of a head.
    Head,
    /// The number by which the connection's window grows.
    Window,
    /// A stream's number, and its priority.
    Priority,
    Other,
}

/// The client's preface (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// For one point, this many bytes of a response: clients confirm them with WINDOW_UPDATE.
const BYTES_PER_POINT: u64 = 512;
/// The work of a frame, in bytes of a head.
const WORK_OF_FRAME: usize = 32;
/// The longest PRIORITY_UPDATE that is read. The others are ignored.
const MAX_PRIORITY_UPDATE: usize = 4 + 256;
/// A frame of DATA with fewer bytes counts: more may come in a single large one.
const SMALL_DATA_BYTES: usize = 64;

// === impl Frames ===

impl Frames {
    /// The frames of a connection, from its first byte on.
    pub fn new() -> Frames {
        Frames {
            state: State::Preface(PREFACE.len()),
            account: Account::new(),
            sent: 0,
            in_head: false,
            work: 0,
            kept: Vec::new(),
            window: 0,
            updates: Vec::new(),
            last_stream: 0,
            trailers_of: None,
            trailers: Vec::new(),
        }
    }

    /// Bytes came. `false` if the client has sent too many frames without a use.
    pub fn read(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Preface(missing) => {
                    let (_, rest) = bytes.split_at((*missing).min(bytes.len()));
                    *missing -= bytes.len() - rest.len();
                    bytes = rest;
                    if *missing == 0 {
                        self.state = State::Header([0; HEADER_BYTES], 0);
                    }
                }
                State::Header(header, come) => {
                    let length = bytes.len().min(HEADER_BYTES - *come);
                    header[*come..*come + length].copy_from_slice(&bytes[..length]);
                    *come += length;
                    bytes = &bytes[length..];
                    if *come == HEADER_BYTES {
                        let header = *header;
                        self.begin(header);
                    }
                }
                State::Payload(missing, payload) => {
                    let (come, rest) = bytes.split_at((*missing).min(bytes.len()));
                    match payload {
                        Payload::Head => {
                            self.work += come.len();
                            self.trailers.extend(self.trailers_of.map(|stream| (stream, come.len())));
                        }
                        Payload::Window | Payload::Priority => self.kept.extend_from_slice(come),
                        Payload::Other => {}
                    }
                    *missing -= come.len();
                    bytes = rest;
                    if *missing == 0 {
                        let payload = *payload;
                        self.in_head = payload == Payload::Head && self.in_head;
                        self.state = State::Header([0; HEADER_BYTES], 0);
                        self.end(payload);
                    }
                }
            }
        }
        self.account.has_points()
    }

    /// Whether the frames that came are enough work for one turn of the event loop. If so, another turn begins.
    pub fn take_turn_end(&mut self) -> bool {
        let has_ended = self.work >= WORK_OF_TURN;
        if has_ended {
            self.work = 0;
        }
        has_ended
    }

    /// Bytes were sent.
    pub fn wrote(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        self.account.add((self.sent / BYTES_PER_POINT) as i64);
        self.sent %= BYTES_PER_POINT;
    }

    /// By how many bytes the connection's window has grown since the last call.
    pub fn take_window(&mut self) -> u64 {
        std::mem::take(&mut self.window)
    }

    /// The priorities that came since the last call.
    pub fn take_priorities(&mut self) -> impl Iterator<Item = PriorityUpdate> {
        self.updates.drain(..)
    }

    /// The bytes of trailers that came since the last call, by stream.
    pub fn take_trailers(&mut self) -> impl Iterator<Item = (u32, usize)> {
        self.trailers.drain(..)
    }

    /// Whether the preface or a head has begun, and is not complete.
    pub fn has_open_head(&self) -> bool {
        self.in_head
            || match self.state {
                State::Preface(_) => true,
                State::Payload(_, payload) => payload == Payload::Head,
                State::Header(..) => false,
            }
    }

    /// A frame begins, of which only the header has come.
    fn begin(&mut self, header: [u8; HEADER_BYTES]) {
        let [a, b, c, kind, flags, stream @ ..] = header;
        let is_of_connection = stream == [0; 4];
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let is_set = |flag: u8| flags & flag != 0;
        self.account.add(match kind {
            HEADERS => 8,
            DATA if length == 0 && !is_set(END_STREAM) => -8,
            DATA if length < SMALL_DATA_BYTES && !is_set(END_STREAM) => -1,
            DATA => 1,
            RST_STREAM | SETTINGS if !(kind == SETTINGS && is_set(ACK)) => -16,
            PING if !is_set(ACK) => -4,
            CONTINUATION => -4,
            WINDOW_UPDATE => -1,
            PRIORITY => -2,
            SETTINGS | PING => 0,
            // PRIORITY_UPDATE, and unknown ones, which are ignored.
            _ => -2,
        });
        self.work += WORK_OF_FRAME;
        let payload = match kind {
            HEADERS | CONTINUATION => Payload::Head,
            WINDOW_UPDATE if is_of_connection && length == 4 => Payload::Window,
            PRIORITY_UPDATE if is_of_connection && (4..=MAX_PRIORITY_UPDATE).contains(&length) => Payload::Priority,
            _ => Payload::Other,
        };
        if kind == HEADERS {
            let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
            self.trailers_of = (stream <= self.last_stream).then_some(stream);
            self.last_stream = self.last_stream.max(stream);
        }
        if payload == Payload::Head {
            self.in_head = !is_set(END_HEADERS);
        }
        self.state = if length == 0 { State::Header([0; HEADER_BYTES], 0) } else { State::Payload(length, payload) };
    }

    /// A payload is complete.
    fn end(&mut self, payload: Payload) {
        if let Some((number, field)) = self.kept.split_first_chunk() {
            // The first bit is reserved.
            let number = u32::from_be_bytes(*number) & (u32::MAX >> 1);
            match payload {
                Payload::Window => self.window += u64::from(number),
                Payload::Priority => {
                    self.updates.push(PriorityUpdate { stream: number.into(), field: PriorityField::parse(field) });
                }
                Payload::Head | Payload::Other => {}
            }
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn connected() -> Frames {
        let mut frames = Frames::new();
        assert!(frames.has_open_head() && frames.read(PREFACE) && !frames.has_open_head());
        frames
    }

    /// How many of these frames a client may send at once.
    fn most(bytes: &[u8]) -> usize {
        let mut frames = connected();
        (0..100_000).find(|_| !frames.read(bytes)).unwrap_or(usize::MAX)
    }

    #[test]
    fn frames_without_a_use_are_limited() {
        let headers = frame(HEADERS, END_HEADERS | END_STREAM, b"\x82\x84\x87");
        let table: &[(&str, Vec<u8>, std::ops::Range<usize>)] = &[
            ("SETTINGS", frame(SETTINGS, 0, &[]), 400..700),
            ("PING", frame(PING, 0, &[0; 8]), 1900..2200),
            ("PRIORITY", frame(PRIORITY, 0, &[0; 5]), 3900..4300),
            ("PRIORITY_UPDATE", frame(16, 0, b"\0\0\0\x01u=1"), 3900..4300),
            ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]), 7900..8600),
            ("RST_STREAM", frame(RST_STREAM, 0, &[0; 4]), 400..700),
            ("empty DATA", frame(DATA, 0, &[]), 900..1100),
            ("DATA of one byte", frame(DATA, 0, b"a"), 7900..8600),
            ("requests that are reset", [headers.clone(), frame(RST_STREAM, 0, &[0; 4])].concat(), 900..1200),
        ];
        for (name, bytes, expected) in table {
            let most = most(bytes);
            assert!(expected.contains(&most), "{name}: {most}");
        }
    }

    #[test]
    fn frames_with_a_use_are_not_limited() {
        let headers = frame(HEADERS, END_HEADERS | END_STREAM, b"\x82\x84\x87");
        let acks = [frame(SETTINGS, ACK, &[]), frame(PING, ACK, &[0; 8])].concat();
        for bytes in [headers, frame(DATA, 0, &[0; 16384]), frame(DATA, END_STREAM, &[]), acks] {
            assert_eq!(most(&bytes), usize::MAX, "{:?}", &bytes[..9]);
        }
    }

    #[test]
    fn a_turn_ends_after_some_heads_and_not_after_a_body() {
        let mut frames = connected();
        assert!(frames.read(&frame(DATA, 0, &[0; 16384]).repeat(10)) && !frames.take_turn_end());
        assert!(frames.read(&frame(HEADERS, END_HEADERS, &[0xbf; 4000]).repeat(2)) && frames.take_turn_end());
        assert!(!frames.take_turn_end(), "another turn");
        assert!(frames.read(&frame(HEADERS, END_HEADERS, b"\x82\x84\x87").repeat(300)) && frames.take_turn_end());
    }

    #[test]
    fn bytes_of_responses_pay_for_window_updates() {
        let mut frames = connected();
        for _ in 0..100_000 {
            frames.wrote(1024);
            assert!(frames.read(&frame(WINDOW_UPDATE, 0, &[0, 0, 4, 0]).repeat(2)));
        }
    }

    #[test]
    fn windows_and_priorities_are_kept_in_any_pieces() {
        let of_connection = |kind, payload: &[u8]| {
            let mut bytes = frame(kind, 0, payload);
            bytes[8] = 0;
            bytes
        };
        let all = [
            PREFACE.to_vec(),
            of_connection(WINDOW_UPDATE, &[0x80, 0, 1, 2]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 9, 9]),
            of_connection(PRIORITY_UPDATE, b"\0\0\0\x05u=1, i"),
            frame(PRIORITY_UPDATE, 0, b"\0\0\0\x05u=2"),
            of_connection(PRIORITY_UPDATE, b"\0\0\0"),
            of_connection(PRIORITY_UPDATE, &[0; MAX_PRIORITY_UPDATE + 1]),
            of_connection(PRIORITY_UPDATE, b"\0\0\0\x07"),
            of_connection(WINDOW_UPDATE, &[0, 0, 0, 1]),
        ]
        .concat();
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::new();
            assert!(all.chunks(size).all(|piece| frames.read(piece)));
            let update = |stream, field: &str| PriorityUpdate { stream, field: PriorityField::parse(field.as_bytes()) };
            assert_eq!(frames.take_priorities().collect::<Vec<_>>(), [update(5, "u=1, i"), update(7, "")], "{size}");
            assert_eq!((frames.take_window(), frames.take_window()), (0x103, 0), "{size}");
        }
    }

    #[test]
    fn trailers_are_counted_in_any_pieces() {
        let of_stream = |stream, kind, flags, payload: &[u8]| {
            let mut bytes = frame(kind, flags, payload);
            bytes[8] = stream;
            bytes
        };
        let all = [
            PREFACE.to_vec(),
            of_stream(1, HEADERS, 0, b"abc"),
            of_stream(1, CONTINUATION, END_HEADERS, b"def"),
            of_stream(3, HEADERS, END_HEADERS, b"abc"),
            of_stream(1, DATA, 0, &[0; 100]),
            of_stream(1, HEADERS, END_STREAM, &[0x90; 40]),
            of_stream(1, CONTINUATION, END_HEADERS, &[0x90; 2]),
            of_stream(5, HEADERS, END_HEADERS, b"abc"),
            of_stream(3, HEADERS, END_STREAM | END_HEADERS, &[0x90; 7]),
        ]
        .concat();
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::new();
            assert!(all.chunks(size).all(|piece| frames.read(piece)));
            let mut of = [0; 6];
            frames.take_trailers().for_each(|(stream, bytes)| of[stream as usize] += bytes);
            assert_eq!(of, [0, 42, 0, 7, 0, 0], "{size}");
        }
    }

    #[test]
    fn an_incomplete_head_is_noticed_in_any_pieces() {
        let all = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, &[]),
            frame(HEADERS, END_STREAM, b"abc"),
            frame(CONTINUATION, 0, b""),
            frame(CONTINUATION, END_HEADERS, b"def"),
            frame(DATA, 0, &[0; 100]),
        ]
        .concat();
        // The HEADERS frame is known once its header has come.
        let open = PREFACE.len() + 9 + 9..PREFACE.len() + 9 + 12 + 9 + 12;
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::new();
            let mut come = 0;
            for piece in all.chunks(size) {
                assert!(frames.read(piece));
                come += piece.len();
                assert_eq!(frames.has_open_head(), come < PREFACE.len() || open.contains(&come), "{come} by {size}");
            }
        }
    }
}
