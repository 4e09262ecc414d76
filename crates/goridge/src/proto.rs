//! Messages of protobuf (proto3): the few parts of the encoding that contexts need.
//!
//! A map is a list of messages with a key, 1, and a value, 2. A field that has its default, such as an empty string, is
//! left out. Fields that are unknown are skipped. Nothing here recurses: a reader goes into nested messages that it knows.

/// The value of a field.
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of a fixed length. No field here has this type.
    Fixed,
}

/// A message that is being read.
pub(crate) struct Fields<'a>(pub &'a [u8]);

/// The bytes are not a message.
#[derive(Debug)]
pub(crate) struct Malformed;

/// The types of fields.
const NUMBER: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;
/// The most bytes of a number.
const MAX_NUMBER_BYTES: usize = 10;

/// Appends a field of bytes, unless it has the default.
pub(crate) fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        write_message(out, field, bytes);
    }
}

/// Appends a field of bytes, or of a message.
pub(crate) fn write_message(out: &mut Vec<u8>, field: u8, message: &[u8]) {
    write_tag(out, field, BYTES);
    write_number(out, message.len() as u64);
    out.extend_from_slice(message);
}

/// Appends a field that is true, unless it is false, the default.
pub(crate) fn write_bool(out: &mut Vec<u8>, field: u8, is_true: bool) {
    if is_true {
        write_tag(out, field, NUMBER);
        out.push(1);
    }
}

fn write_tag(out: &mut Vec<u8>, field: u8, kind: u8) {
    out.push(field << 3 | kind);
}

/// Seven bits a byte, the low ones first. The high bit of a byte is set if another one follows.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// The number and the value of the next field.
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match (tag & 7) as u8 {
            NUMBER => Value::Number(self.number()?),
            BYTES => {
                let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for index in 0..MAX_NUMBER_BYTES {
            let [byte] = *self.take(1)? else { return Err(Malformed) };
            // Bits beyond the 64th are dropped, as by all decoders.
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            assert_eq!(Fields(&bytes).number().ok(), Some(number));
            assert!(Fields(&bytes[..bytes.len() - 1]).number().is_err());
        }
    }
}
