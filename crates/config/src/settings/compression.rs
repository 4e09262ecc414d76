//! `compression`: which responses are compressed, and how.

use std::ops::RangeInclusive;

use crate::error::{Error, quoted};
use crate::matching::pattern::{PatternSubject, Patterns};
use crate::read::node::{Node, Options};
use crate::read::scope::Scope;
use crate::read::size;

pub(crate) const OPTIONS: Options = Options { known: &["types", "compressors"], unsupported: &[] };
pub(crate) const COMPRESSOR_OPTIONS: Options =
    Options { known: &["encoding", "level", "min_length"], unsupported: &[] };

const MAX_MIN_LENGTH_BYTES: u64 = i64::MAX as u64;

/// Which responses are compressed, and how. The default compresses nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The MIME types (in lower case, without parameters) of responses that are compressed; `None`: all types.
    pub types: Option<Patterns>,
    /// The compressors. A client's `Accept-Encoding` selects one; among those that it prefers equally, the first. Each
    /// encoding appears once.
    pub compressors: Vec<Compressor>,
}

/// An encoding, and the responses for which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressor {
    /// The encoding with its level.
    pub encoding: Encoding,
    /// Shorter bodies are not compressed, in bytes. Default: 0.
    pub min_length: u64,
}

/// An encoding with its level. A higher level is slower and compresses better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `zstd`, -7 to 22. Default: 3.
    Zstd(i32),
    /// `br`, 0 to 11. Default: 4, because the format's own default, 11, is far too slow while a client waits.
    Brotli(u32),
    /// `gzip`, 0 to 9. Default: 6.
    Gzip(u32),
    /// `deflate`, 0 to 9. Default: 6.
    Deflate(u32),
}

// === impl Compression ===

impl Compression {
    /// Reads `compression`. Its `compressors` are an object or an array of objects.
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
                    return Err(node.error(format_args!("the encoding {encoding:?} appears twice; remove one")));
                }
                compressors.push(compressor);
            }
            Ok(compressors)
        })?;
        Ok(Self {
            types: object.read("types", |node| Patterns::read(node, PatternSubject::MimeType, scope))?,
            compressors: compressors.unwrap_or_default(),
        })
    }
}

// === impl Compressor ===

impl Compressor {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&COMPRESSOR_OPTIONS)?;
        let encoding = object.require("encoding", "\"encoding\": \"zstd\", \"br\", \"gzip\" or \"deflate\"")?;
        let min_length = object.read("min_length", |node| size::in_range(node, 0..=MAX_MIN_LENGTH_BYTES))?;
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
    fn compressors_have_a_level_and_a_minimum_length() {
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
    fn an_invalid_compressor_is_rejected() {
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
                "compressors/1: the encoding \"br\" appears twice; remove one",
            ),
            (r#"{"types": {}}"#, "types: expected a string or an array of strings, found an object"),
            (r#"{"type": "text/*"}"#, "type: there is no such option; did you mean \"types\"?"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
