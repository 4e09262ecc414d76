//! Percent-encoding, strictly: `%` and two hexadecimal digits.

/// The text with its escapes replaced.
///
/// # Errors
///
/// What is wrong with it: an incomplete escape, or bytes that are not UTF-8.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                // Two digits make at most 255.
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => {
                    return Err("has a \"%\" without two hexadecimal digits; write %25 for a percent sign");
                }
            },
            other => other,
        });
    }
    match String::from_utf8(bytes) {
        Ok(decoded) if decoded.contains('\0') => Err("has %00, which no path or name can hold"),
        Ok(decoded) => Ok(decoded),
        Err(_) => Err("is not UTF-8 when its percent escapes are decoded"),
    }
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
    fn a_header_value_is_ascii_and_keeps_its_escapes() {
        assert_eq!(encode_header_value("/ä b%20?x=1"), "/%C3%A4%20b%20?x=1");
    }
}
