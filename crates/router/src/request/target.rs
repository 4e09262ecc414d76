//! The target of a rewritten request: its decoded path and its query, encoded for a request line or a `Location`.

use std::fmt::Write as _;

/// Encodes a path whose bytes are all literal, and a query that contains escapes already.
pub fn encode(path: &[u8], query: &str) -> String {
    let mut target = String::with_capacity(path.len() + query.len() + 16);
    encode_to(&mut target, path, b"%?");
    if !query.is_empty() {
        target.push('?');
        encode_to(&mut target, query.as_bytes(), b"");
    }
    target
}

fn encode_to(out: &mut String, bytes: &[u8], and: &[u8]) {
    for byte in bytes {
        if !byte.is_ascii_graphic() || b"\"#<>\\^`{|}".contains(byte) || and.contains(byte) {
            let _ = write!(out, "%{byte:02X}");
        } else {
            out.push(char::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::uri::PathAndQuery;

    #[test]
    fn bytes_that_are_not_allowed_in_a_target_are_encoded() {
        let cases: [(&[u8], &str, &str); 6] = [
            (b"/a/b", "", "/a/b"),
            (b"/a b%?#", "", "/a%20b%25%3F%23"),
            (b"/\xff\r\n", "", "/%FF%0D%0A"),
            ("/\u{e4}".as_bytes(), "a=\u{e4} \r\n&b=%20?#", "/%C3%A4?a=%C3%A4%20%0D%0A&b=%20?%23"),
            (b"/a:@!$&'()*+,;=~", "", "/a:@!$&'()*+,;=~"),
            (b"/", "[]", "/?[]"),
        ];
        for (path, query, expected) in cases {
            let target = encode(path, query);
            assert_eq!(target, expected);
            assert_eq!(target.parse::<PathAndQuery>().expect("target").as_str(), expected);
        }
    }
}
