//! ETags of documents, and the `If-Match` header, with which a client names the configuration that it expects to
//! change.
//!
//! NGINX Unit has neither. One ETag stands for the whole configuration, whichever part a request is about, so that a
//! client notices a change anywhere.

use sha2::{Digest, Sha256};

/// The part of the hash that is used, in bytes: long enough to exclude collisions, and short enough to type.
const HASH_BYTES: usize = 16;

/// The strong ETag of a document's compact text, quotes included: its hash.
pub(crate) fn of(compact: &str) -> String {
    let hash = Sha256::digest(compact);
    let digits: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Whether this `If-Match` header allows a change of the configuration with this ETag: the header is `*`, or one of its
/// tags is the ETag. A weak tag (`W/"…"`) never matches, nor does a malformed header (RFC 9110, 13.1.1). Join several
/// headers with commas.
pub fn if_match(header: &str, etag: &str) -> bool {
    if header.trim_matches([' ', '\t']) == "*" {
        return true;
    }
    let mut rest = header;
    let mut found = false;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return found;
        }
        let weak = rest.strip_prefix("W/");
        let Some(tag) = weak.unwrap_or(rest).strip_prefix('"') else { return false };
        let Some((tag, after)) = tag.split_once('"') else { return false };
        let after = after.trim_start_matches([' ', '\t']);
        if !after.is_empty() && !after.starts_with(',') {
            return false;
        }
        found |= weak.is_none() && etag.strip_prefix('"').and_then(|etag| etag.strip_suffix('"')) == Some(tag);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_strong_and_depends_on_the_text() {
        assert_eq!(of("{}"), "\"44136fa355b3678a1146ad16f7e8649e\"");
        assert_ne!(of("{\"a\":1}"), of("{\"a\":2}"));
    }

    #[test]
    fn if_match_needs_one_strong_tag() {
        let cases = [
            ("*", true),
            (" * ", true),
            ("\"x\"", true),
            ("\"y\", \"x\"", true),
            ("\"y\",,\"x\" ,", true),
            ("\"a, b\", \"x\"", true),
            ("W/\"x\"", false),
            ("W/\"x\", \"x\"", true),
            ("\"y\"", false),
            ("x", false),
            ("\"x", false),
            ("\"x\" \"y\"", false),
            ("\"x\", oops", false),
            ("\"x\", *", false),
            ("", false),
        ];
        for (header, expected) in cases {
            assert_eq!(if_match(header, "\"x\""), expected, "{header}");
        }
    }
}
