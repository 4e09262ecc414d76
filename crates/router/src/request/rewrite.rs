//! The path that `rewrite` makes. Clients choose the values of variables, so a value must not change what the operator wrote.
//!
//! - The text of the configuration is percent-encoded, and so is `$request_uri`, which has the client's spelling: escapes
//!   are decoded, and a `?` or a `#` ends the path. A `..` of `$request_uri` stays within it.
//! - All other values are decoded already: their bytes become part of the path as they are. `%`, `?` and `#` have no
//!   meaning in them.
//! - A value never climbs: a segment `..` of which a value is a part, or before which a value ends, makes the path invalid. Neither
//!   does it let the operator's `..` climb further: a value that ends in no segment, or in `.`, before such a `..` is invalid.
//!
//! Fails with a [`BadRewrite`]: the operator's mistake, or a value for which there is no path.

use crate::request::path::{self, BadPath, RequestPath};
use howdah_config::{Template, TemplatePart, TemplateVariable, Variables};
use std::ops::Range;

/// Why a rewrite makes no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRewrite {
    /// The text of the configuration is not a path.
    Text(BadPath),
    /// A value has a NUL, or a segment `..`.
    Value,
}

/// A path in the making.
#[derive(Default)]
struct Parts {
    decoded: Vec<u8>,
    /// The parts of it that are values, in their order.
    values: Vec<Range<usize>>,
}

/// The path of a rewrite, which gets a slash at its beginning if it has none. `uri` is the value of `$uri`, as bytes.
///
/// # Errors
/// See [`BadRewrite`].
pub fn path<V: Variables + ?Sized>(
    rewrite: &Template,
    variables: &V,
    uri: &[u8],
) -> Result<RequestPath<'static>, BadRewrite> {
    let mut parts = Parts { decoded: b"/".to_vec(), values: Vec::new() };
    for part in rewrite.parts() {
        let ends = match part {
            TemplatePart::Literal(text) => {
                let (decoded, ends) = decode(text)?;
                parts.decoded.extend_from_slice(&decoded);
                ends
            }
            TemplatePart::Variable(TemplateVariable::Uri) => {
                parts.add_value(uri);
                false
            }
            TemplatePart::Variable(variable) => {
                let mut value = String::new();
                let _ = variables.write(variable, &mut value);
                if *variable == TemplateVariable::RequestUri {
                    let (decoded, ends) = decode(&value)?;
                    parts.add_value(&resolved(decoded)?);
                    ends
                } else {
                    parts.add_value(value.as_bytes());
                    false
                }
            }
        };
        if ends {
            break;
        }
    }
    if parts.has_invalid_value() {
        return Err(BadRewrite::Value);
    }
    RequestPath::from_decoded(&parts.decoded).map_err(BadRewrite::Text)
}

// === impl Parts ===

impl Parts {
    fn add_value(&mut self, value: &[u8]) {
        let start = self.decoded.len();
        self.decoded.extend_from_slice(value);
        self.values.push(start..self.decoded.len());
    }

    fn has_invalid_value(&self) -> bool {
        let is_of_value =
            |range: Range<usize>| self.values.iter().any(|value| value.start < range.end && range.start < value.end);
        let has_nul = || self.values.iter().any(|value| self.decoded[value.clone()].contains(&0));
        let ends_a_value =
            |range: &Range<usize>| self.values.iter().any(|value| value.start <= range.end && range.start <= value.end);
        let mut start = 0;
        let mut follows_nothing_of_value = false;
        let climbs = self.decoded.split(|&byte| byte == b'/').any(|segment| {
            let segment_at = start..start + segment.len();
            start = segment_at.end + 1;
            // With the slash before it.
            let climbs = segment == b".."
                && (follows_nothing_of_value || is_of_value(segment_at.start.saturating_sub(1)..segment_at.end));
            follows_nothing_of_value = matches!(segment, b"" | b".") && ends_a_value(&segment_at);
            climbs
        });
        climbs || has_nul()
    }
}

/// Decodes a text up to its query. Returns whether the path ends in it.
fn decode(text: &str) -> Result<(Vec<u8>, bool), BadRewrite> {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    Ok((path::decode(path.as_bytes()).map_err(BadRewrite::Text)?, path.len() < text.len()))
}

/// The client's path without its own `..`, none of which climbs above the root. The target `*` has none.
fn resolved(decoded: Vec<u8>) -> Result<Vec<u8>, BadRewrite> {
    match decoded.first() {
        Some(b'/') => path::resolve_segments(&decoded).map_err(|_| BadRewrite::Value),
        _ => Ok(decoded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of all variables.
    struct Value<'v>(&'v str);

    impl Variables for Value<'_> {
        fn write(&self, _: &TemplateVariable, out: &mut String) -> bool {
            out.push_str(self.0);
            true
        }
    }

    fn rewritten(rewrite: &str, value: &str) -> Result<Vec<u8>, BadRewrite> {
        path(&rewrite.parse().unwrap(), &Value(value), value.as_bytes()).map(|path| path.bytes().to_vec())
    }

    #[test]
    fn a_value_is_not_decoded_again() {
        let table = [
            ("/public$uri", "/%61dmin/a.txt", "/public/%61dmin/a.txt"),
            ("/public$uri", "/%2e%2e/private/s.txt", "/public/%2e%2e/private/s.txt"),
            ("/public$uri", "/x.php?.png", "/public/x.php?.png"),
            ("/public$uri", "/x.php#.png", "/public/x.php#.png"),
            ("/public$uri", "/%", "/public/%"),
            ("/public$uri", "/%00", "/public/%00"),
            ("/public$uri", "/a\r\n\x7fb", "/public/a\r\n\x7fb"),
            ("/public/$arg_x", "a%2fb?c", "/public/a%2fb?c"),
            ("/public/$arg_x/d", "a//b/./c", "/public/a/b/c/d"),
            ("/a$arg_x/..b", "..", "/a../..b"),
            ("$arg_x", "new", "/new"),
            ("$arg_x", "", "/"),
            ("/$arg_x", "..a/...", "/..a/..."),
        ];
        for (rewrite, value, expected) in table {
            let path = rewritten(rewrite, value);
            assert_eq!(path.as_deref(), Ok(expected.as_bytes()), "{rewrite} {value:?}");
        }
        let uri = path(&"/a$uri".parse().unwrap(), &Value(""), b"/\xff%ff").unwrap();
        assert_eq!((uri.bytes(), uri.text()), (&b"/a/\xff%ff"[..], "/a/%FF%ff"));
    }

    #[test]
    fn text_is_encoded() {
        let table = [
            ("", "/"),
            ("new", "/new"),
            ("/a%20b/../c", "/c"),
            ("/a%3Fb?c=d#e", "/a?b"),
            ("/a#b?c", "/a"),
            ("/a?$arg_x", "/a"),
            ("/a/..$uri", "/v"),
            ("/a$uri/../b", "/a/b"),
        ];
        for (rewrite, expected) in table {
            assert_eq!(rewritten(rewrite, "/v").as_deref(), Ok(expected.as_bytes()), "{rewrite}");
        }
    }

    #[test]
    fn the_clients_target_is_encoded_and_stays_below_its_root() {
        let table = [
            ("/a$request_uri", "/r%2Fs/%2561?q=/../..", "/a/r/s/%61"),
            ("$request_uri/more", "/r?q", "/r"),
            ("$request_uri/more", "/r", "/r/more"),
            ("/a$request_uri", "/b/%2e%2e/c%3Fd", "/a/c?d"),
            ("/a${request_uri}.", "/.", "/a/"),
            ("/a${request_uri}.", "/%2e", "/a/"),
            ("/a${request_uri}", "*", "/a*"),
        ];
        for (rewrite, target, expected) in table {
            assert_eq!(rewritten(rewrite, target).as_deref(), Ok(expected.as_bytes()), "{rewrite} {target}");
        }
        assert_eq!(rewritten("/a${request_uri}..", "/"), Err(BadRewrite::Value));
    }

    #[test]
    fn a_value_does_not_climb() {
        let table = [
            ("/public/$arg_x", "../private/s.txt"),
            ("/public/$arg_x", "a/../b"),
            ("/public/$arg_x", ".."),
            ("/public/.$arg_x/b", "."),
            ("/public/$arg_x./b", "."),
            ("/public/$arg_x$arg_x/b", "."),
            ("/public$arg_x../b", "/"),
            ("/public/$arg_x/../b", ""),
            ("/public/$arg_x/../b", "."),
            ("/public/$arg_x/../b", "a/."),
            ("/public/$arg_x/../b", "a/"),
            ("/public$arg_x/../b", "/"),
            ("$arg_x", "/x/../y"),
            ("/public/$arg_x", "a\0b"),
        ];
        for (rewrite, value) in table {
            assert_eq!(rewritten(rewrite, value), Err(BadRewrite::Value), "{rewrite} {value:?}");
        }
    }

    #[test]
    fn text_that_is_not_a_path_is_the_operators_mistake() {
        let table = [("/..", BadPath::Escape), ("/%4$arg_x", BadPath::Encoding), ("/%00", BadPath::Nul)];
        for (rewrite, expected) in table {
            assert_eq!(rewritten(rewrite, "1"), Err(BadRewrite::Text(expected)), "{rewrite}");
        }
    }
}
