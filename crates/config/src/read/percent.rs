//! Percent-encoding of URIs and queries.

use std::borrow::Cow;

/// Decodes the escapes of a text.
///
/// # Errors
///
/// An incomplete escape, a NUL, or bytes that are not UTF-8; the error follows the text in a message.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    match String::from_utf8(decode_bytes(text)?) {
        Ok(decoded) if decoded.contains('\0') => Err("has %00, which no path or name can contain"),
        Ok(decoded) => Ok(decoded),
        Err(_) => Err("is not UTF-8 when its percent escapes are decoded"),
    }
}

/// The text with its escapes replaced, whatever bytes they stand for.
///
/// # Errors
///
/// An escape is incomplete.
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

/// Decodes the escapes and plus signs of a query from a client. An incomplete escape stays as it is.
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
    // Two digits are at most 255.
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Makes the text a URI. A text that is a URI already is unchanged; in any other text, all bytes that a URI cannot
/// contain are escaped, percent signs too. The first `?` and the first `#` keep their meaning.
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
        let allowed = match byte {
            b'%' => rest.next().zip(rest.next()).and_then(|(high, low)| escaped(high, low)).is_some(),
            byte => separators.take(byte) || is_uri_byte(byte),
        };
        if !allowed {
            return false;
        }
    }
    true
}

/// The separators of a URI that have been seen.
#[derive(Default)]
struct Separators {
    query: bool,
    fragment: bool,
}

impl Separators {
    /// Whether this byte begins the query or the fragment.
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

/// Encodes the text as one segment of a URL's path: escapes what would end the segment or the path, and what a URL
/// cannot contain.
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
    fn incomplete_escapes_of_a_query_stay() {
        let cases = [("a+b%20c", "a b c"), ("%2B", "+"), ("100%", "100%"), ("%4", "%4"), ("%zz%41", "%zzA")];
        for (text, expected) in cases {
            assert_eq!(decode_form(text.as_bytes()).as_ref(), expected.as_bytes(), "{text}");
        }
    }

    #[test]
    fn a_uri_stays_and_any_other_text_becomes_one() {
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
