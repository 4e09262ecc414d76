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

/// The text with everything escaped that cannot stand in a header's value: spaces and what is not ASCII.
pub(crate) fn encode_header_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
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
    fn a_header_value_is_ascii_and_keeps_its_escapes() {
        assert_eq!(encode_header_value("/ä b%20?x=1"), "/%C3%A4%20b%20?x=1");
    }
}
