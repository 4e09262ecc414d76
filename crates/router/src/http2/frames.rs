//! Counts the frames of a client, so that frames without a use do not cost without a limit.
//!
//! h2 bounds the memory that frames take. It does not bound their number: a client could send SETTINGS, PING, PRIORITY
//! and WINDOW_UPDATE as fast as the network carries them, or begin and reset requests (CVE-2023-44487). Each such frame
//! takes points from an account; requests, bytes of responses, and time add some. A client whose account is empty loses
//! its connection. The usual behaviour of browsers, proxies and gRPC stays far away from it.
//!
//! It also notices whether a head is incomplete: HEADERS or CONTINUATION without END_HEADERS, or a part of one.

use std::time::Instant;

/// The frames of one connection, as they are read.
pub struct Frames {
    state: State,
    account: Account,
    /// Whether the frames of a head have begun, and none has ended it.
    in_head: bool,
    /// The work of the frames that came in this turn.
    work: usize,
}

enum State {
    /// How many bytes of the client's preface have not come.
    Preface(usize),
    /// A frame's header, and how many bytes of it have come.
    Header([u8; HEADER_BYTES], usize),
    /// The payload of a frame: how many bytes have not come, and whether it belongs to a head.
    Payload(usize, bool),
}

struct Account {
    points: i64,
    /// When time was last credited.
    since: Instant,
    /// How many bytes of responses were not credited.
    sent: u64,
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
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The most points of an account, and those of a new connection.
const MAX_POINTS: i64 = 8000;
const POINTS_PER_SECOND: i64 = 500;
/// For one point, this many bytes of a response: clients confirm them with WINDOW_UPDATE.
const BYTES_PER_POINT: u64 = 512;
/// The most work of one turn: each byte of a head may stand for a header of thousands of bytes.
const WORK_OF_TURN: usize = 8 * 1024;
/// The work of a frame, in bytes of a head.
const WORK_OF_FRAME: usize = 32;
/// A frame of DATA with fewer bytes counts: more may come in a single large one.
const SMALL_DATA_BYTES: usize = 64;

// === impl Frames ===

impl Frames {
    /// The frames of a connection, from its first byte on.
    pub fn new() -> Frames {
        Frames {
            state: State::Preface(PREFACE.len()),
            account: Account { points: MAX_POINTS, since: Instant::now(), sent: 0 },
            in_head: false,
            work: 0,
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
                State::Payload(missing, is_head) => {
                    let (_, rest) = bytes.split_at((*missing).min(bytes.len()));
                    if *is_head {
                        self.work += bytes.len() - rest.len();
                    }
                    *missing -= bytes.len() - rest.len();
                    bytes = rest;
                    if *missing == 0 {
                        self.in_head = *is_head && self.in_head;
                        self.state = State::Header([0; HEADER_BYTES], 0);
                    }
                }
            }
        }
        self.account.points > 0 || self.account.credit_time()
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
        self.account.sent += bytes as u64;
        self.account.add((self.account.sent / BYTES_PER_POINT) as i64);
        self.account.sent %= BYTES_PER_POINT;
    }

    /// Whether the preface or a head has begun, and is not complete.
    pub fn has_open_head(&self) -> bool {
        self.in_head
            || match self.state {
                State::Preface(_) => true,
                State::Payload(_, is_head) => is_head,
                State::Header(..) => false,
            }
    }

    /// A frame begins, of which only the header has come.
    fn begin(&mut self, header: [u8; HEADER_BYTES]) {
        let [a, b, c, kind, flags, ..] = header;
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
            // Unknown ones are ignored, such as PRIORITY_UPDATE.
            _ => -2,
        });
        self.work += WORK_OF_FRAME;
        let is_head = matches!(kind, HEADERS | CONTINUATION);
        if is_head {
            self.in_head = !is_set(END_HEADERS);
        }
        self.state = if length == 0 { State::Header([0; HEADER_BYTES], 0) } else { State::Payload(length, is_head) };
    }
}

// === impl Account ===

impl Account {
    fn add(&mut self, points: i64) {
        self.points = self.points.saturating_add(points).min(MAX_POINTS);
    }

    /// Adds the points for the time that has passed. Looks at the time only here: most accounts are never empty.
    fn credit_time(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.duration_since(self.since).as_millis();
        self.since = now;
        self.add(i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(POINTS_PER_SECOND) / 1000);
        self.points > 0
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
