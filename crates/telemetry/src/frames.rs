//! The frames of the pipe: the spans of one request each, or a line of a log.
//!
//! A frame is at most [`MAX_FRAME_BYTES`] long, so that the kernel writes it whole or not at all, and frames of several
//! threads never mix. A reader that died may have taken a part of a frame: its successor looks for the next marker, a
//! random number that clients do not know.

use crate::signal::Signal;

/// The most bytes of a frame: `PIPE_BUF`.
pub const MAX_FRAME_BYTES: usize = 4096;

/// A random number that is the beginning of each frame of a pipe.
pub type Marker = u64;

/// Spans of one request, or lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// [`Signal::Traces`] or [`Signal::Logs`].
    pub signal: Signal,
    /// How many.
    pub count: u8,
    /// A [`ScopeSpans`](crate::messages::ScopeSpans) or [`ScopeLogs`](crate::messages::ScopeLogs) without a scope, encoded.
    pub encoded: Vec<u8>,
}

/// Takes bytes of the pipe, and finds the frames in them.
#[derive(Debug)]
pub struct FrameReader {
    marker: [u8; MARKER_BYTES],
    bytes: Vec<u8>,
}

const MARKER_BYTES: usize = size_of::<Marker>();
/// The marker, the kind, the number of spans or lines, and the length of the rest.
const HEAD_BYTES: usize = MARKER_BYTES + 1 + 1 + 2;
/// The most bytes of a frame's content.
pub const MAX_CONTENT_BYTES: usize = MAX_FRAME_BYTES - HEAD_BYTES;
/// The kinds.
const TRACES: u8 = 1;
const LOGS: u8 = 2;

/// A frame; `None` if the content is too long for one.
pub fn frame(marker: Marker, spans: &Encoded) -> Option<Vec<u8>> {
    let length = u16::try_from(spans.encoded.len()).ok()?;
    let total = HEAD_BYTES + spans.encoded.len();
    if total > MAX_FRAME_BYTES {
        return None;
    }
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&marker.to_le_bytes());
    frame.push(if spans.signal == Signal::Logs { LOGS } else { TRACES });
    frame.push(spans.count);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&spans.encoded);
    Some(frame)
}

// === impl FrameReader ===

impl FrameReader {
    /// Without bytes.
    pub fn new(marker: Marker) -> FrameReader {
        FrameReader { marker: marker.to_le_bytes(), bytes: Vec::new() }
    }

    /// Takes bytes, and returns the frames that are whole now. Bytes that belong to no frame are skipped.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Encoded> {
        self.bytes.extend_from_slice(bytes);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(rest) = self.bytes.get(at..).filter(|rest| rest.len() >= HEAD_BYTES) {
            let length = usize::from(u16::from_le_bytes([rest[MARKER_BYTES + 2], rest[MARKER_BYTES + 3]]));
            if !rest.starts_with(&self.marker) || HEAD_BYTES + length > MAX_FRAME_BYTES {
                at += 1;
                continue;
            }
            let Some(encoded) = rest.get(HEAD_BYTES..HEAD_BYTES + length) else { break };
            let signal = if rest[MARKER_BYTES] == LOGS { Signal::Logs } else { Signal::Traces };
            found.push(Encoded { signal, count: rest[MARKER_BYTES + 1], encoded: encoded.to_vec() });
            at += HEAD_BYTES + length;
        }
        self.bytes.drain(..at);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = 0x0123_4567_89ab_cdef;

    fn spans(length: usize) -> Encoded {
        let signal = if length < 100 { Signal::Traces } else { Signal::Logs };
        Encoded { signal, count: 3, encoded: (0..length).map(|n| n as u8).collect() }
    }

    #[test]
    fn frames_are_read_whatever_the_pieces() {
        let all: Vec<_> = [0, 1, 700, MAX_FRAME_BYTES - HEAD_BYTES].map(spans).into();
        let bytes: Vec<u8> = all.iter().flat_map(|spans| frame(MARKER, spans).expect("a frame")).collect();
        for size in [1, 7, 4096, bytes.len()] {
            let mut reader = FrameReader::new(MARKER);
            let found: Vec<_> = bytes.chunks(size).flat_map(|piece| reader.take(piece)).collect();
            assert_eq!(found, all, "{size}");
            assert!(reader.bytes.is_empty());
        }
    }

    #[test]
    fn spans_that_are_too_long_are_no_frame() {
        assert_eq!(frame(MARKER, &spans(MAX_FRAME_BYTES - HEAD_BYTES + 1)), None);
        assert_eq!(frame(MARKER, &spans(70_000)), None);
    }

    #[test]
    fn a_reader_that_begins_within_a_frame_finds_the_next_one() {
        let bytes: Vec<u8> = [spans(300), spans(20)].iter().flat_map(|s| frame(MARKER, s).expect("a frame")).collect();
        for begin in 1..300 {
            assert_eq!(FrameReader::new(MARKER).take(&bytes[begin..]), [spans(20)], "{begin}");
        }
    }

    #[test]
    fn bytes_of_another_pipe_take_no_memory() {
        let mut reader = FrameReader::new(MARKER);
        for _ in 0..100 {
            assert_eq!(reader.take(&[0xef; 4096]), []);
            assert!(reader.bytes.len() < HEAD_BYTES);
        }
    }
}
