//! Counts the bytes of DATA that are written: the client's window of the connection has fewer then. h2 does not state it.

use std::io::IoSlice;

/// The frames that howdah writes, as far as they were written.
#[derive(Default)]
pub struct SentFrames {
    header: [u8; HEADER_BYTES],
    /// How many bytes of the header were written.
    come: usize,
    /// How many bytes of the payload were not.
    missing: usize,
}

const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;

// === impl SentFrames ===

impl SentFrames {
    /// These bytes were written. Returns how many bytes of DATA begin in them.
    pub fn wrote(&mut self, mut bytes: &[u8]) -> u64 {
        let mut sent = 0;
        while !bytes.is_empty() {
            let skipped = self.missing.min(bytes.len());
            self.missing -= skipped;
            bytes = &bytes[skipped..];
            let length = bytes.len().min(HEADER_BYTES - self.come);
            self.header[self.come..self.come + length].copy_from_slice(&bytes[..length]);
            self.come += length;
            bytes = &bytes[length..];
            if self.come == HEADER_BYTES {
                let [a, b, c, kind, ..] = self.header;
                self.missing = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.come = 0;
                if kind == DATA {
                    sent += self.missing as u64;
                }
            }
        }
        sent
    }

    /// The same for this number of bytes in several pieces.
    pub fn wrote_pieces(&mut self, pieces: &[IoSlice<'_>], mut written: usize) -> u64 {
        let mut sent = 0;
        for piece in pieces {
            let length = piece.len().min(written);
            written -= length;
            sent += self.wrote(&piece[..length]);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_counted_in_any_pieces() {
        let frame = |kind: u8, length: u8| [&[0, 0, length, kind, 0, 0, 0, 0, 1], &*vec![0; length.into()]].concat();
        let all = [frame(4, 12), frame(1, 30), frame(DATA, 200), frame(DATA, 0), frame(6, 8), frame(DATA, 7)].concat();
        for size in [1, 3, 9, 1000] {
            let mut frames = SentFrames::default();
            assert_eq!(all.chunks(size).map(|piece| frames.wrote(piece)).sum::<u64>(), 207, "{size}");
        }
        let pieces: Vec<_> = all.chunks(50).map(IoSlice::new).collect();
        assert_eq!(SentFrames::default().wrote_pieces(&pieces, all.len()), 207);
        assert_eq!(SentFrames::default().wrote_pieces(&pieces, 70), 200, "the last header that was written");
    }
}
