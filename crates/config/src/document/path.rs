//! The path of a value in a document, in the form of the control API: `listeners/unix:%2Frun%2Fx.sock/pass`.
//!
//! A path has names of members and indexes of elements (from 0), separated by slashes. In a name, a slash is written
//! `%2F` and a percent sign `%25`; any other character may be escaped too. Leading, trailing and doubled slashes are
//! ignored, as in NGINX Unit, so a member with an empty name has no path. `.` and `..` are ordinary names.

use std::fmt;

use crate::document::answer::{Refusal, text};
use crate::error::quoted;
use crate::read::percent;

/// The path of a value in a document. It is displayed in its shortest form, without a leading slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentPath {
    /// Names and indexes, decoded. They are not empty.
    segments: Vec<String>,
}

// === impl DocumentPath ===

impl DocumentPath {
    /// Parses the part of a request's path after `/config`. The empty path and `/` are the whole document.
    ///
    /// # Errors
    ///
    /// 400 if a percent sign is not followed by two hexadecimal digits, or if a name is not UTF-8 or has a NUL.
    pub fn parse(path: &str) -> Result<Self, Refusal> {
        let segments = path.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
            percent::decode(segment)
                .map_err(|problem| Refusal::new(400, text::INVALID_PATH, format!("{} {problem}", quoted(segment))))
        });
        Ok(Self { segments: segments.collect::<Result<_, _>>()? })
    }

    /// The names and indexes, decoded.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Whether it is the path of the whole document.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty()
    }
}

impl<S: Into<String>> FromIterator<S> for DocumentPath {
    /// From names as they are in the document. Empty names are skipped.
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self { segments: names.into_iter().map(Into::into).filter(|name: &String| !name.is_empty()).collect() }
    }
}

impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            f.write_str(&percent::encode_segment(segment))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_parsed_and_displayed() {
        let cases: [(&str, &[&str], &str); 9] = [
            ("", &[], ""),
            ("/", &[], ""),
            ("//", &[], ""),
            ("/listeners/*:80", &["listeners", "*:80"], "listeners/*:80"),
            ("listeners/*:80/", &["listeners", "*:80"], "listeners/*:80"),
            ("/listeners//unix:%2frun%2Fx", &["listeners", "unix:/run/x"], "listeners/unix:%2Frun%2Fx"),
            ("/a%20b/%C3%A4/%2541", &["a b", "ä", "%41"], "a%20b/%C3%A4/%2541"),
            ("/[::1]:80/../.", &["[::1]:80", "..", "."], "[::1]:80/../."),
            ("/a?b#c", &["a?b#c"], "a%3Fb%23c"),
        ];
        for (text, segments, written) in cases {
            let path = DocumentPath::parse(text).expect(text);
            assert_eq!(path.segments(), segments, "{text}");
            assert_eq!(path.to_string(), written);
            assert_eq!(DocumentPath::parse(written), Ok(path));
        }
    }

    #[test]
    fn an_invalid_path_is_rejected() {
        for (text, expected) in [
            ("/a/%zz", "\"%zz\" has a \"%\" without two hexadecimal digits; write %25 for a percent sign"),
            ("/100%", "\"100%\" has a \"%\" without two hexadecimal digits; write %25 for a percent sign"),
            ("/%ff", "\"%ff\" is not UTF-8 when its percent escapes are decoded"),
            ("/a%00b", "\"a%00b\" has %00, which no path or name can contain"),
        ] {
            assert_eq!(DocumentPath::parse(text), Err(Refusal::new(400, "Invalid path.", expected)));
        }
    }
}
