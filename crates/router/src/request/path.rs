//! Request path normalisation: different spellings of a path become one.
//!
//! The path is percent-decoded first and its dot segments are resolved afterwards, so that `%2F` and `%2e%2e` hide
//! no traversal. Runs of slashes become one; a trailing slash stays, because it marks a folder. A backslash is an
//! ordinary byte, and so is a control character; a path need not be UTF-8: its meaning is up to the application. A path
//! that is normal already is borrowed, not copied.
//!
//! Fails with a [`BadPath`], which is a mistake of the client and answered 400: a bad percent encoding, a NUL, a `..`
//! that leaves the root.

use std::{borrow::Cow, error::Error, fmt};

/// A request's path, percent-decoded, without empty and dot segments, and without NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'r> {
    text: Cow<'r, str>,
    /// Only if it is not UTF-8.
    bytes: Option<Vec<u8>>,
}

/// Why a request path is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It does not begin with a slash.
    NotAbsolute,
    /// A `%` without two hexadecimal digits after it.
    Encoding,
    /// A NUL, plain or encoded.
    Nul,
    /// A `..` climbs above the root.
    Escape,
}

// === impl RequestPath ===

impl<'r> RequestPath<'r> {
    /// The path of a request target.
    ///
    /// # Errors
    /// See [`BadPath`].
    pub fn normalise(raw_path: &'r str) -> Result<Self, BadPath> {
        if !raw_path.starts_with('/') {
            return Err(BadPath::NotAbsolute);
        }
        if is_normal(raw_path.as_bytes()) {
            return Ok(Self { text: Cow::Borrowed(raw_path), bytes: None });
        }
        Self::from_decoded(&decode(raw_path.as_bytes())?)
    }

    /// The path of decoded bytes that begin with a slash: their dot segments are resolved.
    ///
    /// # Errors
    /// See [`BadPath`].
    pub fn from_decoded(decoded: &[u8]) -> Result<Self, BadPath> {
        if decoded.contains(&0) {
            return Err(BadPath::Nul);
        }
        Ok(match String::from_utf8(resolve_segments(decoded)?) {
            Ok(text) => Self { text: Cow::Owned(text), bytes: None },
            Err(error) => {
                let bytes = error.into_bytes();
                Self { text: Cow::Owned(encode_invalid_utf8(&bytes)), bytes: Some(bytes) }
            }
        })
    }

    /// The path `/`, without a request.
    pub fn root() -> Self {
        Self { text: Cow::Borrowed("/"), bytes: None }
    }

    /// The path as text, for conditions and templates. Bytes that are not UTF-8 are percent-encoded again.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether [`RequestPath::text`] is the whole path, without encoded bytes.
    pub fn is_text(&self) -> bool {
        self.bytes.is_none()
    }

    /// The path itself.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.text.as_bytes())
    }
}

/// Whether decoding and resolving would change nothing. `/.name` counts as not normal: the slow path handles it.
fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    path.iter().all(|&byte| {
        let normal = !(matches!(byte, b'%' | 0) || previous == b'/' && matches!(byte, b'/' | b'.'));
        previous = byte;
        normal
    })
}

/// Decodes percent escapes.
///
/// # Errors
/// For a `%` without two hexadecimal digits.
pub fn decode(raw: &[u8]) -> Result<Vec<u8>, BadPath> {
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

/// Resolves dot segments and doubled slashes of an absolute path that is not encoded.
///
/// # Errors
/// When it climbs above the root.
pub fn resolve_segments(path: &[u8]) -> Result<Vec<u8>, BadPath> {
    let mut resolved = Vec::with_capacity(path.len());
    let mut names_a_folder = false;
    for segment in path.split(|&byte| byte == b'/').skip(1) {
        names_a_folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = resolved.iter().rposition(|&byte| byte == b'/').ok_or(BadPath::Escape)?;
                resolved.truncate(parent);
            }
            name => {
                resolved.push(b'/');
                resolved.extend_from_slice(name);
            }
        }
    }
    if names_a_folder {
        resolved.push(b'/');
    }
    Ok(resolved)
}

fn encode_invalid_utf8(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 16);
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
    }
    text
}

impl fmt::Display for BadPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotAbsolute => "the request path does not begin with a slash",
            Self::Encoding => "the request path has a '%' without two hexadecimal digits",
            Self::Nul => "the request path has a NUL",
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
            ("/a%0d%0a%7f\tb", "/a\r\n\x7f\tb"),
        ];
        for (raw, expected) in table {
            let path = RequestPath::normalise(raw);
            assert_eq!(path.as_ref().map(RequestPath::text), Ok(expected), "{raw}");
            assert_eq!(path.as_ref().map(RequestPath::bytes), Ok(expected.as_bytes()), "{raw}");
        }
    }

    #[test]
    fn a_path_need_not_be_text() {
        let table: &[(&str, &[u8], &str)] = &[
            ("/%ff", b"/\xff", "/%FF"),
            ("/a%C3%A9%c3/b", b"/a\xc3\xa9\xc3/b", "/aé%C3/b"),
            ("/%c0%ae%c0%ae/", b"/\xc0\xae\xc0\xae/", "/%C0%AE%C0%AE/"),
            ("/%ff/./%2e%2e/%fe", b"/\xfe", "/%FE"),
        ];
        for (raw, bytes, text) in table {
            let path = RequestPath::normalise(raw).unwrap();
            assert!(!path.is_text());
            assert_eq!((path.bytes(), path.text()), (*bytes, *text), "{raw}");
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
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
            ("/%ff/../..", BadPath::Escape),
            ("/%", BadPath::Encoding),
            ("/%4", BadPath::Encoding),
            ("/%zz", BadPath::Encoding),
            ("/%+1", BadPath::Encoding),
            ("/a%00.html", BadPath::Nul),
            ("/a\0", BadPath::Nul),
        ];
        for (raw, expected) in table {
            assert_eq!(RequestPath::normalise(raw), Err(expected), "{raw}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for raw in ["/", "/a/b.html", "/a/b/", "/a.b/c..d", "/café"] {
            assert!(matches!(RequestPath::normalise(raw).unwrap().text, Cow::Borrowed(_)), "{raw}");
        }
    }
}
