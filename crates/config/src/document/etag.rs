//! ETags of documents, and the `If-Match` header with which a client says what it believes to be in force.
//!
//! howdah's own: NGINX Unit has neither. One ETag stands for the whole configuration, whatever part of it a request is
//! about, so that a change anywhere is noticed.

use sha2::{Digest, Sha256};

/// How much of the hash is kept, in bytes: far beyond chance, and short enough to type.
const HASH_BYTES: usize = 16;

/// A strong ETag, quotes included: the hash of a document's compact text.
pub(crate) fn of(compact: &str) -> String {
    let hash = Sha256::digest(compact);
    let digits: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Whether a change with this `If-Match` header may be made while the configuration has this ETag: the header is `*`,
/// or one of its tags is the ETag. A weak tag (`W/"…"`) never is, nor is anything in a header that cannot be read
/// (RFC 9110, 13.1.1). Several headers are to be joined with commas.
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
    fn an_etag_is_strong_and_stands_for_the_text() {
        assert_eq!(of("{}"), "\"44136fa355b3678a1146ad16f7e8649e\"");
        assert_ne!(of("{\"a\":1}"), of("{\"a\":2}"));
    }

    #[test]
    fn if_match_wants_one_strong_tag() {
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
