//! The compression formats: takes bytes, returns compressed bytes, in pieces.

use bytes::Bytes;
use flate2::write::{GzEncoder, ZlibEncoder};
use howdah_config::Encoding;
use std::io::{self, Write};
use zstd::zstd_safe::CParameter;

/// The state of the compression of one body.
pub struct Encoder {
    format: Format,
    is_slow: bool,
}

enum Format {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
    /// `deflate` is zlib's format (RFC 9110, 8.4.1.2).
    Deflate(ZlibEncoder<Vec<u8>>),
}

/// The largest window of zstd that clients must support (RFC 9659): 8 MiB.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
/// The first level of zstd whose window would be larger.
const FIRST_ZSTD_LEVEL_WITH_LARGER_WINDOW: i32 = 20;

/// The window of brotli for a body of unknown length: 512 KiB. A larger one costs memory for each connection.
const BROTLI_WINDOW_LOG: u32 = 19;
const MIN_BROTLI_WINDOW_LOG: u32 = 10;
const BROTLI_BUFFER_BYTES: usize = 8 * 1024;

// === impl Encoder ===

impl Encoder {
    /// Encodes a body of this length, if that is known. A wrong length is an error at the end of the body.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(encoding: Encoding, length: Option<u64>) -> io::Result<Encoder> {
        let format = match encoding {
            Encoding::Zstd(level) => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                if level >= FIRST_ZSTD_LEVEL_WITH_LARGER_WINDOW {
                    encoder.set_parameter(CParameter::WindowLog(MAX_ZSTD_WINDOW_LOG))?;
                }
                // Limits its memory to the needs of the body.
                encoder.set_pledged_src_size(length)?;
                Format::Zstd(encoder)
            }
            Encoding::Brotli(level) => {
                let window = length.map_or(BROTLI_WINDOW_LOG, |length| {
                    (u64::BITS - length.leading_zeros()).clamp(MIN_BROTLI_WINDOW_LOG, BROTLI_WINDOW_LOG)
                });
                let encoder = brotli::CompressorWriter::new(Vec::new(), BROTLI_BUFFER_BYTES, level, window);
                Format::Brotli(Box::new(encoder))
            }
            Encoding::Gzip(level) => Format::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(level))),
            Encoding::Deflate(level) => Format::Deflate(ZlibEncoder::new(Vec::new(), flate2::Compression::new(level))),
        };
        Ok(Encoder { format, is_slow: is_slow(encoding) })
    }

    /// Whether it is too slow to run on an event loop.
    pub fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Compresses bytes. The compressed bytes may become ready later.
    ///
    /// # Errors
    /// When the body is longer than announced, or there is no memory.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    /// Makes all written bytes ready, in a form that a client can decompress.
    ///
    /// # Errors
    /// As [`Encoder::write`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// How many compressed bytes are ready to be taken.
    pub fn ready_bytes(&self) -> usize {
        match &self.format {
            Format::Zstd(encoder) => encoder.get_ref().len(),
            Format::Brotli(encoder) => encoder.get_ref().len(),
            Format::Gzip(encoder) => encoder.get_ref().len(),
            Format::Deflate(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes the compressed bytes that are ready.
    pub fn take(&mut self) -> Bytes {
        std::mem::take(match &mut self.format {
            Format::Zstd(encoder) => encoder.get_mut(),
            Format::Brotli(encoder) => encoder.get_mut(),
            Format::Gzip(encoder) => encoder.get_mut(),
            Format::Deflate(encoder) => encoder.get_mut(),
        })
        .into()
    }

    /// Ends the body, and returns the remaining bytes.
    ///
    /// # Errors
    /// When the body is not as long as announced.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.format {
            Format::Zstd(encoder) => encoder.finish(),
            Format::Brotli(encoder) => Ok(encoder.into_inner()),
            Format::Gzip(encoder) => encoder.finish(),
            Format::Deflate(encoder) => encoder.finish(),
        }
    }

    /// Compresses a whole body.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn finish_with(mut self, body: &[u8]) -> io::Result<Vec<u8>> {
        self.write(body)?;
        self.finish()
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.format {
            Format::Zstd(encoder) => encoder,
            Format::Brotli(encoder) => encoder,
            Format::Gzip(encoder) => encoder,
            Format::Deflate(encoder) => encoder,
        }
    }
}

/// Whether it takes longer than two or three milliseconds for 64 KiB, or one to begin with; see the test `speeds`.
pub fn is_slow(encoding: Encoding) -> bool {
    match encoding {
        Encoding::Zstd(level) => level >= 11,
        Encoding::Brotli(level) => level >= 5,
        Encoding::Gzip(level) | Encoding::Deflate(level) => level >= 8,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Read;

    /// Decompresses as a client does.
    pub fn decode(encoding: Encoding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        match encoding {
            Encoding::Zstd(_) => drop(zstd::stream::read::Decoder::new(bytes)?.read_to_end(&mut plain)?),
            Encoding::Brotli(_) => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain)?),
            Encoding::Gzip(_) => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain)?),
            Encoding::Deflate(_) => drop(flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut plain)?),
        }
        Ok(plain)
    }

    /// Text that can be compressed, but not to nothing.
    pub fn text(length: usize) -> Vec<u8> {
        let mut seed = 1u32;
        let mut text = Vec::with_capacity(length + 16);
        while text.len() < length {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend_from_slice(format!("<li>{}</li>\n", seed >> 20).as_bytes());
        }
        text.truncate(length);
        text
    }

    fn levels() -> impl Iterator<Item = Encoding> {
        let zstd = [-7, -1, 0, 1, 3, 12, 13, 19, 20, 22].map(Encoding::Zstd);
        let brotli = [0, 1, 2, 4, 8, 9, 11].map(Encoding::Brotli);
        let zlib = [0, 1, 6, 9].into_iter().flat_map(|level| [Encoding::Gzip(level), Encoding::Deflate(level)]);
        zstd.into_iter().chain(brotli).chain(zlib)
    }

    #[test]
    fn decoding_returns_the_original_bytes() {
        let body = text(100_000);
        for encoding in levels() {
            for length in [None, Some(body.len() as u64)] {
                let mut encoder = Encoder::new(encoding, length).unwrap();
                let mut compressed = Vec::new();
                for piece in body.chunks(60_000) {
                    encoder.write(piece).unwrap();
                    compressed.extend_from_slice(&encoder.take());
                }
                compressed.extend_from_slice(&encoder.finish().unwrap());
                let is_smaller = compressed.len() < body.len() / 2;
                assert!(is_smaller || matches!(encoding, Encoding::Gzip(0) | Encoding::Deflate(0)), "{encoding:?}");
                assert!(decode(encoding, &compressed).unwrap() == body, "{encoding:?}");
            }
        }
    }

    #[test]
    fn an_empty_body_stays_empty() {
        for encoding in levels() {
            let compressed = Encoder::new(encoding, None).unwrap().finish_with(b"").unwrap();
            assert_eq!(decode(encoding, &compressed).unwrap(), b"", "{encoding:?}");
        }
    }

    #[test]
    fn flushed_bytes_can_be_decoded() {
        for encoding in levels() {
            let mut encoder = Encoder::new(encoding, None).unwrap();
            let mut compressed = Vec::new();
            let mut plain = Vec::new();
            for word in ["one", "two", "three"] {
                encoder.write(word.as_bytes()).unwrap();
                encoder.flush().unwrap();
                compressed.extend_from_slice(&encoder.take());
                plain.extend_from_slice(word.as_bytes());
                assert_eq!(decode_prefix(encoding, &compressed), plain, "{encoding:?}");
            }
        }
    }

    fn decode_prefix(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
        fn read(mut reader: impl Read) -> Vec<u8> {
            let mut plain = Vec::new();
            let mut byte = [0];
            while reader.read(&mut byte).is_ok_and(|length| length == 1) {
                plain.push(byte[0]);
            }
            plain
        }
        match encoding {
            Encoding::Zstd(_) => read(zstd::stream::read::Decoder::new(bytes).unwrap()),
            Encoding::Brotli(_) => read(brotli::Decompressor::new(bytes, 4096)),
            Encoding::Gzip(_) => read(flate2::read::GzDecoder::new(bytes)),
            Encoding::Deflate(_) => read(flate2::read::ZlibDecoder::new(bytes)),
        }
    }

    /// The measurement behind [`is_slow`]: `cargo test --release -p howdah-router --lib -- --ignored --nocapture speeds`
    #[test]
    #[ignore = "a measurement"]
    fn speeds() {
        let body = text(1 << 20);
        let zlib = (0..=9).map(Encoding::Gzip);
        for encoding in (-7..=22).map(Encoding::Zstd).chain((0..=11).map(Encoding::Brotli)).chain(zlib) {
            let mut encoder = Encoder::new(encoding, None).unwrap();
            let mut longest = std::time::Duration::ZERO;
            let begin = std::time::Instant::now();
            for piece in body.chunks(64 * 1024) {
                let begin = std::time::Instant::now();
                encoder.write(piece).unwrap();
                longest = longest.max(begin.elapsed());
            }
            let length = encoder.finish().unwrap().len();
            let small = std::time::Instant::now();
            let small_length = Encoder::new(encoding, Some(4096)).unwrap().finish_with(&body[..4096]).unwrap().len();
            println!(
                "{encoding:?}: {:?} a MiB, {longest:?} for a piece, {length} bytes; 4 KiB: {:?}, {small_length} bytes",
                begin.elapsed() - small.elapsed(),
                small.elapsed()
            );
        }
    }
}
