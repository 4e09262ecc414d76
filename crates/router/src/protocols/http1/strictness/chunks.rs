//! The framing of a chunked body (RFC 9112, 7.1): sizes, the line ends around them, and trailers.
//!
//! Stricter than hyper where the grammar is: no space after a size unless an extension follows, no control character in
//! an extension, no trailer that goes on in the next line. The bytes of the body itself are skipped.

/// The current position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In a chunk's size: its value so far, and the number of its digits.
    Size(u64, u8),
    /// In the spaces before an extension of a chunk of this size.
    Space(u64),
    /// In an extension: the size of its chunk, and the number of its bytes so far.
    Extension(u64, u16),
    /// Before the LF of the line with this size.
    SizeLf(u64),
    /// In a chunk that has this number of bytes left.
    Data(u64),
    /// Before the CR LF at the end of a chunk.
    DataCr,
    DataLf,
    /// At the beginning of a line after the last chunk.
    TrailerStart,
    /// In a trailer.
    Trailer,
    /// Before a trailer's LF.
    TrailerLf,
    /// Before the last LF.
    EndLf,
    /// After the last byte of the body.
    End,
}

/// The framing is wrong: the end of the body is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenChunks;

/// Sixteen hexadecimal digits are 64 bits.
const MAX_DIGITS: u8 = 16;
const MAX_EXTENSION_BYTES: u16 = 4096;

// === impl Chunks ===

impl Chunks {
    /// The beginning of a body.
    pub const START: Chunks = Chunks::Size(0, 0);

    /// Skips bytes up to the end of the body, and returns how many: up to the first wrong byte if there is an error.
    pub fn skip(&mut self, bytes: &[u8]) -> (usize, Result<(), BrokenChunks>) {
        let mut at = 0;
        while at < bytes.len() && *self != Chunks::End {
            if let Chunks::Data(left) = self {
                let taken = usize::try_from(*left).map_or(bytes.len() - at, |left| left.min(bytes.len() - at));
                at += taken;
                *left -= taken as u64;
                if *left == 0 {
                    *self = Chunks::DataCr;
                }
                continue;
            }
            match self.after(bytes[at]) {
                Some(next) => *self = next,
                None => return (at, Err(BrokenChunks)),
            }
            at += 1;
        }
        (at, Ok(()))
    }

    fn after(self, byte: u8) -> Option<Chunks> {
        Some(match (self, byte) {
            (Chunks::Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16)?;
                Chunks::Size(size << 4 | u64::from(digit), digits + 1)
            }
            (Chunks::Size(_, 0), _) => return None,
            (Chunks::Size(size, _), b'\r') => Chunks::SizeLf(size),
            (Chunks::Size(size, _) | Chunks::Space(size), b' ' | b'\t') => Chunks::Space(size),
            (Chunks::Size(size, _) | Chunks::Space(size), b';') => Chunks::Extension(size, 0),
            (Chunks::Extension(size, _), b'\r') => Chunks::SizeLf(size),
            (Chunks::Extension(size, length), _) if length < MAX_EXTENSION_BYTES && is_text(byte) => {
                Chunks::Extension(size, length + 1)
            }
            (Chunks::SizeLf(0), b'\n') => Chunks::TrailerStart,
            (Chunks::SizeLf(size), b'\n') => Chunks::Data(size),
            (Chunks::DataCr, b'\r') => Chunks::DataLf,
            (Chunks::DataLf, b'\n') => Chunks::START,
            (Chunks::TrailerStart, b'\r') => Chunks::EndLf,
            (Chunks::TrailerStart, b' ' | b'\t') => return None,
            (Chunks::Trailer, b'\r') => Chunks::TrailerLf,
            (Chunks::TrailerStart | Chunks::Trailer, _) if is_text(byte) => Chunks::Trailer,
            (Chunks::TrailerLf, b'\n') => Chunks::TrailerStart,
            (Chunks::EndLf, b'\n') => Chunks::End,
            _ => return None,
        })
    }
}

/// Whether the byte may stand in a header's value (RFC 9110, 5.5).
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(bytes: &[u8]) -> (usize, Result<Chunks, BrokenChunks>) {
        let mut chunks = Chunks::START;
        let (taken, result) = chunks.skip(bytes);
        let at_once = (taken, result.map(|()| chunks));
        let mut slowly = Chunks::START;
        let mut taken = 0;
        for byte in bytes {
            let (one, result) = slowly.skip(&[*byte]);
            taken += one;
            if result.is_err() {
                assert_eq!(at_once, (taken, Err(BrokenChunks)), "{}", bytes.escape_ascii());
                return at_once;
            }
        }
        assert_eq!(at_once, (taken, Ok(slowly)), "{}", bytes.escape_ascii());
        at_once
    }

    #[test]
    fn a_body_ends_after_its_last_chunk() {
        let table: &[&[u8]] = &[
            b"0\r\n\r\n",
            b"3\r\nabc\r\n0\r\n\r\n",
            b"A\r\n0123456789\r\n00\r\n\r\n",
            b"000000000000000a\r\n0123456789\r\n0\r\n\r\n",
            b"3;a=b;c=\"d e\"\r\nabc\r\n0;last\r\n\r\n",
            b"3 \t;a\r\nabc\r\n0\r\n\r\n",
            b"3\r\n\r\n\r\r\n0\r\n\r\n",
            b"1\r\na\r\n1\r\nb\r\n0\r\nX: 1\r\nY:\r\n\r\n",
        ];
        for body in table {
            let followed = [body, &b"GET"[..]].concat();
            assert_eq!(skip(&followed), (body.len(), Ok(Chunks::End)), "{}", body.escape_ascii());
            for length in 0..body.len() {
                let (taken, state) = skip(&body[..length]);
                assert!(taken == length && state != Ok(Chunks::End), "{} {length}", body.escape_ascii());
            }
        }
    }

    #[test]
    fn ambiguous_framing_is_broken() {
        let table: &[(&[u8], usize)] = &[
            (b"\r\n", 0),
            (b"x\r\n", 0),
            (b"-1\r\n", 0),
            (b"+1\r\n", 0),
            (b" 1\r\n", 0),
            (b"0x1\r\n", 1),
            (b"1_0\r\n", 1),
            (b"1 \r\n", 2),
            (b"1 1\r\n", 2),
            (b"1\nabc", 1),
            (b"1\rabc", 2),
            (b"1;a\nb\r\n", 3),
            (b"1;a\0b\r\n", 3),
            (b"1;a\rb\r\n", 4),
            (b"00000000000000001\r\n", 16),
            (b"fffffffffffffffff\r\n", 16),
            (b"3\r\nabcd", 6),
            (b"3\r\nabc\n", 6),
            (b"3\r\nabc\rx", 7),
            (b"0\r\nX: 1\n", 7),
            (b"0\r\nX: 1\r\n Y: 2\r\n\r\n", 9),
            (b"0\r\n\n", 3),
            (b"0\r\n\rx", 4),
        ];
        for (body, at) in table {
            assert_eq!(skip(body), (*at, Err(BrokenChunks)), "{}", body.escape_ascii());
        }
        let extension = [b"1;", &[b'x'; MAX_EXTENSION_BYTES as usize + 1][..]].concat();
        assert_eq!(skip(&extension).1, Err(BrokenChunks));
        assert_eq!(skip(b"ffffffffffffffff\r\n1").1, Ok(Chunks::Data(u64::MAX - 1)));
    }
}
