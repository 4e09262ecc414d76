//! Content types by file name.
//!
//! A configured type has priority, and is sent unchanged. Then come a few corrections for the web and the `mime_guess`
//! table; text gets `charset=utf-8`, except XML, which declares its own encoding and whose declaration a charset would
//! overrule. A file with an unknown extension is `application/octet-stream`. Nothing fails here.

use std::borrow::Cow;

use howdah_config::MimeTypes;
use http::HeaderValue;

/// The configured type of the file, if it has one.
pub(super) fn configured<'a>(mime_types: &'a MimeTypes, path: &str) -> Option<&'a str> {
    mime_types.of(path.rsplit('/').next().unwrap_or(path))
}

/// The Content-Type of the file; `configured` is the result of [`configured`].
pub(super) fn content_type(path: &str, configured: Option<&str>) -> HeaderValue {
    if let Some(value) = configured.and_then(|configured| HeaderValue::from_str(configured).ok()) {
        return value;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let essence = corrected(&lower_case(extension))
        .or_else(|| mime_guess::from_ext(extension).first_raw())
        .unwrap_or("application/octet-stream");
    if !takes_charset(essence) {
        return HeaderValue::from_static(essence);
    }
    // Both parts are printable ASCII, so that the fallback is never used.
    HeaderValue::from_str(&format!("{essence}; charset=utf-8")).unwrap_or(HeaderValue::from_static(essence))
}

/// Corrections of the `mime_guess` table, where it is outdated or means another file format than the web does.
fn corrected(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "mjs" => "text/javascript",
        "ts" => "video/mp2t",
        "m3u8" => "application/vnd.apple.mpegurl",
        "map" => "application/json",
        "woff" => "font/woff",
        "otf" => "font/otf",
        _ => return None,
    })
}

fn takes_charset(essence: &str) -> bool {
    essence == "application/javascript" || (essence.starts_with("text/") && !essence.ends_with("xml"))
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
            ("/a/index.html", "text/html; charset=utf-8"),
            ("/a/INDEX.HTML", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.js.map", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.xml", "text/xml"),
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
            ("a.unknown-thing", "application/octet-stream"),
            ("/a.html/README", "application/octet-stream"),
            ("a.", "application/octet-stream"),
        ];
        for (path, expected) in table {
            assert_eq!(content_type(path, None), expected, "{path}");
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
                assert_eq!(content_type(path, Some(expected)), expected, "{path}");
            }
        }
    }
}
