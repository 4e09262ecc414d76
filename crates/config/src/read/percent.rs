//! Percent-encoding, strictly: `%` and two hexadecimal digits.

use std::borrow::Cow;

/// The text with its escapes replaced.
///
/// # Errors
///
/// What is wrong with it: an incomplete escape, or bytes that are not UTF-8.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    match String::from_utf8(decode_bytes(text)?) {
        Ok(decoded) if decoded.contains('\0') => Err("has %00, which no path or name can hold"),
        Ok(decoded) => Ok(decoded),
        Err(_) => Err("is not UTF-8 when its percent escapes are decoded"),
    }
}

/// The text with its escapes replaced, whatever bytes they stand for.
///
/// # Errors
///
/// What is wrong with it: an incomplete escape.
pub(crate) fn decode_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let escape = rest.next().zip(rest.next()).and_then(|(high, low)| escaped(high, low));
                escape.ok_or("has a \"%\" without two hexadecimal digits; write %25 for a percent sign")?
            }
            other => other,
        });
    }
    Ok(bytes)
}

/// What clients send as a query: escapes and plus signs replaced. What is no escape stays.
pub(crate) fn decode_form(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (byte, after) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match escaped(*high, *low) {
                Some(escaped) => {
                    rest = after;
                    escaped
                }
                None => b'%',
            },
            _ => byte,
        });
    }
    Cow::Owned(bytes)
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte| char::from(byte).to_digit(16);
    // Two digits make at most 255.
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// The text as a URI. One that is a URI already stays as it is; in any other all is escaped that a URI cannot hold, percent
/// signs too. The first `?` and the first `#` are what they are in a URI.
pub(crate) fn encode_uri(text: &str) -> Cow<'_, str> {
    if is_uri(text) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    let mut separators = Separators::default();
    for byte in text.bytes() {
        if separators.take(byte) || is_uri_byte(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(encoded)
}

fn is_uri(text: &str) -> bool {
    let mut separators = Separators::default();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let holds = match byte {
            b'%' => rest.next().zip(rest.next()).and_then(|(high, low)| escaped(high, low)).is_some(),
            byte => separators.take(byte) || is_uri_byte(byte),
        };
        if !holds {
            return false;
        }
    }
    true
}

/// Which bytes have begun a part of a URI.
#[derive(Default)]
struct Separators {
    query: bool,
    fragment: bool,
}

impl Separators {
    /// Whether this one begins a part.
    fn take(&mut self, byte: u8) -> bool {
        match byte {
            b'?' if !self.query && !self.fragment => self.query = true,
            b'#' if !self.fragment => self.fragment = true,
            _ => return false,
        }
        true
    }
}

fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"#%<>?\\^`{|}".contains(&byte)
}

/// The text as one segment of a URL's path: everything is escaped that would end the segment or the path, or that a
/// URL cannot hold.
pub(crate) fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!*+,;:=@()[]".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        let cases = [("a%2Fb", "a/b"), ("%252F", "%2F"), ("%c3%A4", "ä"), ("ä", "ä"), ("", "")];
        for (text, expected) in cases {
            assert_eq!(decode(text).as_deref(), Ok(expected));
        }
        for text in ["%", "%2", "%2x", "%+1", "a%ff", "%00"] {
            assert!(decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_form_is_decoded_as_far_as_it_can_be() {
        let cases = [("a+b%20c", "a b c"), ("%2B", "+"), ("100%", "100%"), ("%4", "%4"), ("%zz%41", "%zzA")];
        for (text, expected) in cases {
            assert_eq!(decode_form(text.as_bytes()).as_ref(), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_is_a_uri_stays_and_all_else_becomes_one() {
        let cases = [
            ("", ""),
            ("https://x.org/a%20b?c=d&e=/#f", "https://x.org/a%20b?c=d&e=/#f"),
            ("/ä b?x=1", "/%C3%A4%20b?x=1"),
            ("%20 ", "%2520%20"),
            ("100%", "100%25"),
            ("???", "?%3F%3F"),
            ("#?#", "#%3F%23"),
            ("\"<>\\^`{|}\r\n\u{7f}", "%22%3C%3E%5C%5E%60%7B%7C%7D%0D%0A%7F"),
        ];
        for (text, expected) in cases {
            assert_eq!(encode_uri(text), expected, "{text}");
        }
    }
}
