//! Request path normalisation: what a client wrote becomes a path that names one thing.
//!
//! The path is percent-decoded first and its dot segments are resolved afterwards, so that `%2F` and `%2e%2e` hide
//! no traversal. Runs of slashes become one; a trailing slash stays, because it says "folder". A backslash is an
//! ordinary byte. A path that is normal already is borrowed, not copied.
//!
//! What is refused is the client's mistake and a [`BadPath`], for an answer 400: a bad percent encoding, a control
//! character, text that is not UTF-8, a `..` that leaves the root.

use std::{borrow::Cow, error::Error, fmt};

/// Why a request path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It does not begin with a slash.
    NotAbsolute,
    /// A `%` without two hexadecimal digits after it.
    Encoding,
    /// A NUL or another ASCII control character, plain or encoded.
    Control,
    /// It is not UTF-8 once it is decoded.
    NotUtf8,
    /// A `..` climbs above the root.
    Escape,
}

/// The path of a request target, percent-decoded, without empty and dot segments.
pub fn normalise(raw_path: &str) -> Result<Cow<'_, str>, BadPath> {
    if !raw_path.starts_with('/') {
        return Err(BadPath::NotAbsolute);
    }
    if is_normal(raw_path.as_bytes()) {
        return Ok(Cow::Borrowed(raw_path));
    }
    let decoded = decode(raw_path.as_bytes())?;
    if decoded.iter().any(u8::is_ascii_control) {
        return Err(BadPath::Control);
    }
    let decoded = String::from_utf8(decoded).map_err(|_| BadPath::NotUtf8)?;
    resolve_segments(&decoded).map(Cow::Owned)
}

/// Whether decoding and resolving would change nothing. `/.name` counts as not normal: the slow way sorts it out.
fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    path.iter().all(|&byte| {
        let normal = byte != b'%' && !byte.is_ascii_control() && !(previous == b'/' && matches!(byte, b'/' | b'.'));
        previous = byte;
        normal
    })
}

fn decode(raw: &[u8]) -> Result<Vec<u8>, BadPath> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|&digit| char::from(digit).to_digit(16)).ok_or(BadPath::Encoding);
        let value = digit()? * 16 + digit()?;
        decoded.push(value as u8); // two hexadecimal digits: at most 255
    }
    Ok(decoded)
}

fn resolve_segments(path: &str) -> Result<String, BadPath> {
    let mut resolved = String::with_capacity(path.len());
    let mut names_a_folder = false;
    for segment in path.split('/').skip(1) {
        names_a_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                let parent = resolved.rfind('/').ok_or(BadPath::Escape)?;
                resolved.truncate(parent);
            }
            name => {
                resolved.push('/');
                resolved.push_str(name);
            }
        }
    }
    if names_a_folder {
        resolved.push('/');
    }
    Ok(resolved)
}

impl fmt::Display for BadPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotAbsolute => "the request path does not begin with a slash",
            Self::Encoding => "the request path has a '%' without two hexadecimal digits",
            Self::Control => "the request path has a control character",
            Self::NotUtf8 => "the request path is not UTF-8",
            Self::Escape => "the request path climbs above the root",
        })
    }
}

impl Error for BadPath {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_and_their_segments_resolved() {
        let table = [
            ("/", "/"),
            ("/index.html", "/index.html"),
            ("/a/b/", "/a/b/"),
            ("//", "/"),
            ("///a//b///", "/a/b/"),
            ("/./a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/a/b/../../c", "/c"),
            ("/a%2Fb", "/a/b"),
            ("/a%2f..%2Fb", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/%2e", "/a/"),
            ("/a%20b", "/a b"),
            ("/a+b", "/a+b"),
            ("/%25", "/%"),
            ("/%252e%252e/a", "/%2e%2e/a"),
            ("/caf%C3%A9", "/café"),
            ("/café", "/café"),
            ("/a\\..\\b", "/a\\..\\b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/..a/b..", "/..a/b.."),
            ("/a%3Fb", "/a?b"),
        ];
        for (raw, expected) in table {
            assert_eq!(normalise(raw).as_deref(), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let table = [
            ("", BadPath::NotAbsolute),
            ("*", BadPath::NotAbsolute),
            ("a/b", BadPath::NotAbsolute),
            ("/..", BadPath::Escape),
            ("/../a", BadPath::Escape),
            ("/a/../../b", BadPath::Escape),
            ("/a/../../a/b", BadPath::Escape),
            ("/%2e%2e/a", BadPath::Escape),
            ("/%2e%2e%2fa", BadPath::Escape),
            ("/..%2f..%2fetc/passwd", BadPath::Escape),
            ("/%", BadPath::Encoding),
            ("/%4", BadPath::Encoding),
            ("/%zz", BadPath::Encoding),
            ("/%+1", BadPath::Encoding),
            ("/a%00.html", BadPath::Control),
            ("/a\0", BadPath::Control),
            ("/a%0d%0ab", BadPath::Control),
            ("/a%7f", BadPath::Control),
            ("/a\tb", BadPath::Control),
            ("/%ff", BadPath::NotUtf8),
            ("/%c0%ae%c0%ae/", BadPath::NotUtf8),
        ];
        for (raw, expected) in table {
            assert_eq!(normalise(raw), Err(expected), "{raw}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for raw in ["/", "/a/b.html", "/a/b/", "/a.b/c..d", "/café"] {
            assert!(matches!(normalise(raw), Ok(Cow::Borrowed(_))), "{raw}");
        }
    }
}
