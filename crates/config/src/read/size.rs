//! A size in bytes, as a number or in the form of php.ini: `134217728`, `"128M"`.

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
