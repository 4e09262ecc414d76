//! A size in bytes, as a number or in the form of php.ini: `134217728`, `"128M"`.

use std::ops::RangeInclusive;

use crate::error::{Error, quoted};
use crate::read::node::{EXACT, Node};

/// Reads a size of 0, or of at least `least`.
pub(crate) fn read(node: &Node<'_>, least: u64) -> Result<u64, Error> {
    let advice = format!("write {least} bytes or more, such as {least} or \"128M\", or 0 for no limit");
    let bytes = if node.is_string() {
        let text = node.string()?;
        let problem = || node.error(format_args!("{} is not a number of bytes; {advice}", quoted(&text)));
        parse(&text).ok_or_else(problem)?
    } else {
        node.integer(0..=EXACT, "bytes")?
    };
    if bytes > 0 && bytes < least {
        return Err(node.error(format_args!("{bytes} bytes are too few; {advice}")));
    }
    Ok(bytes)
}

/// Reads a size in this range.
pub(crate) fn in_range(node: &Node<'_>, range: RangeInclusive<u64>) -> Result<u64, Error> {
    if !node.is_string() {
        return node.integer(range, "bytes");
    }
    let text = node.string()?;
    let advice = format!("write {} to {} bytes, as a number or with a unit: \"20M\"", range.start(), range.end());
    let bytes = parse(&text).ok_or_else(|| node.error(format_args!("{} is not a size; {advice}", quoted(&text))))?;
    match range.contains(&bytes) {
        true => Ok(bytes),
        false => Err(node.error(format_args!("{} is out of range; {advice}", quoted(&text)))),
    }
}

fn parse(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_number)?;
    number.checked_mul(factor).filter(|bytes| *bytes <= EXACT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_text_have_the_same_range() {
        let read = |json: &str| {
            let value = crate::json::parse(json).expect("JSON");
            in_range(&Node::root(&value), 1..=1 << 20).map_err(|error| error.to_string())
        };
        let advice = "write 1 to 1048576 bytes, as a number or with a unit: \"20M\"";
        assert_eq!((read("1024"), read("\"1k\"")), (Ok(1024), Ok(1024)));
        assert_eq!(read("\"2M\""), Err(format!("\"2M\" is out of range; {advice}")));
        assert_eq!(read("\"big\""), Err(format!("\"big\" is not a size; {advice}")));
        assert_eq!(read("0"), Err("0 is out of range; write 1 to 1048576 bytes".to_owned()));
    }

    #[test]
    fn a_size_is_written_as_in_php_ini() {
        let cases = [
            ("0", Some(0)),
            ("134217728", Some(128 << 20)),
            ("128M", Some(128 << 20)),
            ("128m", Some(128 << 20)),
            ("64K", Some(64 << 10)),
            ("2g", Some(2 << 30)),
            ("", None),
            ("M", None),
            ("+1M", None),
            ("-1", None),
            ("1.5G", None),
            ("128MB", None),
            ("128 M", None),
            ("1M ", None),
            ("99999999999G", None),
            ("1é", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
