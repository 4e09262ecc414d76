//! Content types by file name.
//!
//! A configured type has priority, and is sent unchanged. Then come the types that NGINX Unit has and the `mime_guess`
//! table has not, a few corrections for the web, and that table. A file with an unknown extension has no type: its
//! client looks at the content. No type has a charset: a page declares its own encoding (`<meta charset>`), and a
//! charset in the header would overrule it. Nothing fails here.

use std::borrow::Cow;

use howdah_config::MimeTypes;
use http::HeaderValue;

/// The configured type of the file, if it has one.
pub(super) fn configured<'a>(mime_types: &'a MimeTypes, path: &str) -> Option<&'a str> {
    mime_types.of(path.rsplit('/').next().unwrap_or(path))
}

/// The Content-Type of the file, if it is known; `configured` is the result of [`configured`].
pub(super) fn content_type(path: &str, configured: Option<&str>) -> Option<HeaderValue> {
    if let Some(value) = configured.and_then(|configured| HeaderValue::from_str(configured).ok()) {
        return Some(value);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = corrected(&lower_case(extension)).or_else(|| mime_guess::from_ext(extension).first_raw());
    known.map(HeaderValue::from_static)
}

/// Corrections of the `mime_guess` table: the types of NGINX Unit, which `types` of a configuration may name; and types
/// for which the table is outdated, or means another file format than the web does.
fn corrected(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "js" | "mjs" => "application/javascript",
        "xml" => "application/xml",
        "rst" => "text/x-rst",
        "mid" | "midi" => "audio/midi",
        "avifs" => "image/avif-sequence",
        "dll" | "rpm" => "application/octet-stream",
        "ts" => "video/mp2t",
        "m3u8" => "application/vnd.apple.mpegurl",
        "map" => "application/json",
        "woff" => "font/woff",
        "otf" => "font/otf",
        _ => return None,
    })
}

fn lower_case(extension: &str) -> Cow<'_, str> {
    if extension.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(extension.to_ascii_lowercase())
    } else {
        Cow::Borrowed(extension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_extension() {
        let table = [
            ("/a/index.html", "text/html"),
            ("/a/INDEX.HTML", "text/html"),
            ("a.css", "text/css"),
            ("a.js", "application/javascript"),
            ("a.mjs", "application/javascript"),
            ("a.txt", "text/plain"),
            ("a.json", "application/json"),
            ("a.js.map", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.xml", "application/xml"),
            ("a.rst", "text/x-rst"),
            ("a.midi", "audio/midi"),
            ("a.rpm", "application/octet-stream"),
            ("a.png", "image/png"),
            ("a.jpeg", "image/jpeg"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.woff", "font/woff"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.pdf", "application/pdf"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.mp4", "video/mp4"),
            ("a.ts", "video/mp2t"),
        ];
        for (path, expected) in table {
            assert_eq!(content_type(path, None).expect(path), expected, "{path}");
        }
    }

    #[test]
    fn an_unknown_extension_has_no_type() {
        for path in ["a.unknown-thing", "/a.html/README", "a.", ""] {
            assert_eq!(content_type(path, None), None, "{path}");
        }
    }

    #[test]
    fn the_configuration_has_priority() {
        let extensions = [("thing", "text/x-thing"), ("css", "text/css; charset=latin1")];
        let names = [("CHANGES", "text/x-changes")];
        let map = |types: &[(&str, &str)]| types.iter().map(|(file, kind)| ((*file).into(), (*kind).into())).collect();
        let types = MimeTypes { extensions: map(&extensions), names: map(&names) };
        let table = [
            ("/a.thing", Some("text/x-thing")),
            ("/x/CHANGES", Some("text/x-changes")),
            ("/a.b.THING", Some("text/x-thing")),
            ("/a.css", Some("text/css; charset=latin1")),
            ("/x/a.README", None),
            ("/x/thing", None),
            ("/x.thing/a", None),
            ("/a.html", None),
        ];
        for (path, expected) in table {
            assert_eq!(configured(&types, path), expected, "{path}");
            if let Some(expected) = expected {
                assert_eq!(content_type(path, Some(expected)).expect(path), expected, "{path}");
            }
        }
    }
}
