//! `compression`: which responses are compressed, and how.

use std::ops::RangeInclusive;

use crate::error::{Error, quoted};
use crate::matching::pattern::{Patterns, Subject};
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;

pub(crate) const OPTIONS: Options = Options { known: &["types", "compressors"], refused: &[] };
pub(crate) const COMPRESSOR_OPTIONS: Options = Options { known: &["encoding", "level", "min_length"], refused: &[] };

const MAX_MIN_LENGTH_BYTES: u64 = i64::MAX as u64;

/// Which responses are compressed, and how. The default compresses nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The MIME types (in lower case, without parameters) of responses that are compressed; `None` is all.
    pub types: Option<Patterns>,
    /// The ways to compress, of which a client's `Accept-Encoding` chooses; among those that it likes as much, the
    /// first. Each encoding is there once.
    pub compressors: Vec<Compressor>,
}

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressor {
    /// The encoding, and how hard it is tried.
    pub encoding: Encoding,
    /// Shorter bodies stay as they are, in bytes: 0.
    pub min_length: u64,
}

/// An encoding with its level. More is smaller and slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `zstd`, -7 to 22: 3.
    Zstd(i32),
    /// `br`, 0 to 11: 4, since 11, the format's own default, is far too slow to do while a client waits.
    Brotli(u32),
    /// `gzip`, 0 to 9: 6.
    Gzip(u32),
    /// `deflate`, 0 to 9: 6.
    Deflate(u32),
}

// === impl Compression ===

impl Compression {
    /// `compressors` is an object or an array of objects.
    pub(crate) fn read(node: &Node<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let compressors = object.read("compressors", |node| {
            if node.is_object() {
                return Ok(vec![Compressor::read(node)?]);
            }
            if !node.is_array() {
                return Err(node.expected("an object or an array of objects"));
            }
            let mut compressors: Vec<Compressor> = Vec::new();
            for node in node.elements()? {
                let compressor = Compressor::read(&node)?;
                let encoding = compressor.encoding.as_str();
                if compressors.iter().any(|other| other.encoding.as_str() == encoding) {
                    return Err(node.error(format_args!("the encoding {encoding:?} is there twice; remove one")));
                }
                compressors.push(compressor);
            }
            Ok(compressors)
        })?;
        Ok(Self {
            types: object.read("types", |node| Patterns::read(node, Subject::MimeType, scope))?,
            compressors: compressors.unwrap_or_default(),
        })
    }
}

// === impl Compressor ===

impl Compressor {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&COMPRESSOR_OPTIONS)?;
        let encoding = object.require("encoding", "\"encoding\": \"zstd\", \"br\", \"gzip\" or \"deflate\"")?;
        let min_length = object.read("min_length", |node| node.integer(0..=MAX_MIN_LENGTH_BYTES, "bytes"))?;
        let level = object.get("level");
        Ok(Self { encoding: Encoding::read(&encoding, level.as_ref())?, min_length: min_length.unwrap_or(0) })
    }
}

// === impl Encoding ===

impl Encoding {
    fn read(node: &Node<'_>, level: Option<&Node<'_>>) -> Result<Self, Error> {
        let zlib =
            || read_level(level, -1..=9).map(|level| level.filter(|level| *level >= 0).map_or(6, i32::cast_unsigned));
        let text = node.string()?;
        match text.as_str() {
            "zstd" => Ok(Self::Zstd(read_level(level, -7..=22)?.unwrap_or(3))),
            "br" => Ok(Self::Brotli(read_level(level, 0..=11)?.map_or(4, i32::cast_unsigned))),
            "gzip" => Ok(Self::Gzip(zlib()?)),
            "deflate" => Ok(Self::Deflate(zlib()?)),
            _ => {
                let advice = "write \"zstd\", \"br\", \"gzip\" or \"deflate\"";
                Err(node.error(format_args!("{} is not an encoding; {advice}", quoted(&text))))
            }
        }
    }

    /// The name in `Content-Encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zstd(_) => "zstd",
            Self::Brotli(_) => "br",
            Self::Gzip(_) => "gzip",
            Self::Deflate(_) => "deflate",
        }
    }
}

fn read_level(level: Option<&Node<'_>>, range: RangeInclusive<i32>) -> Result<Option<i32>, Error> {
    level.map(|node| node.integer(range, "")).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Compression, String> {
        let value = json::parse(json).expect("JSON");
        Compression::read(&Node::root(&value), &Scope::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn compressors_have_a_level_and_a_least_length() {
        let compressor = |encoding, min_length| Compressor { encoding, min_length };
        let cases = [
            ("{}", vec![]),
            (r#"{"compressors": {"encoding": "gzip"}}"#, vec![compressor(Encoding::Gzip(6), 0)]),
            (
                r#"{"compressors": [{"encoding": "zstd", "level": 19, "min_length": 1024}, {"encoding": "br"},
                    {"encoding": "gzip", "level": -1}, {"encoding": "deflate", "level": 0}]}"#,
                vec![
                    compressor(Encoding::Zstd(19), 1024),
                    compressor(Encoding::Brotli(4), 0),
                    compressor(Encoding::Gzip(6), 0),
                    compressor(Encoding::Deflate(0), 0),
                ],
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json).map(|compression| compression.compressors), Ok(expected), "{json}");
        }
        let types = read(r#"{"types": ["text/*", "!text/csv"]}"#).expect("compression").types.expect("types");
        assert!(types.matches(b"text/html") && !types.matches(b"text/csv"));
    }

    #[test]
    fn a_wrong_compressor_is_refused() {
        let cases = [
            (
                r#"{"compressors": "gzip"}"#,
                "compressors: expected an object or an array of objects, found the string \"gzip\"",
            ),
            (
                r#"{"compressors": {}}"#,
                "compressors: \"encoding\" is missing; add \"encoding\": \"zstd\", \"br\", \"gzip\" or \"deflate\"",
            ),
            (
                r#"{"compressors": {"encoding": "lzma"}}"#,
                "compressors/encoding: \"lzma\" is not an encoding; write \"zstd\", \"br\", \"gzip\" or \"deflate\"",
            ),
            (
                r#"{"compressors": [{"encoding": "zstd", "level": 23}]}"#,
                "compressors/0/level: 23 is out of range; write -7 to 22",
            ),
            (
                r#"{"compressors": [{"encoding": "br", "level": 12}]}"#,
                "compressors/0/level: 12 is out of range; write 0 to 11",
            ),
            (
                r#"{"compressors": [{"encoding": "gzip", "level": 10}]}"#,
                "compressors/0/level: 10 is out of range; write -1 to 9",
            ),
            (
                r#"{"compressors": [{"encoding": "br", "min_length": -1}]}"#,
                "compressors/0/min_length: -1 is out of range; write 0 to 9223372036854775807 bytes",
            ),
            (
                r#"{"compressors": [{"encoding": "br"}, {"encoding": "br"}]}"#,
                "compressors/1: the encoding \"br\" is there twice; remove one",
            ),
            (r#"{"types": {}}"#, "types: expected a string or an array of strings, found an object"),
            (r#"{"type": "text/*"}"#, "type: there is no such option; did you mean \"types\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
