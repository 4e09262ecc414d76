//! The number of fields in a head, before it is unpacked.
//!
//! In QPACK (RFC 9204, 4.5), a byte may stand for a header. h3 makes all of them before their number is known here: a head
//! of 3 KB would cost a millisecond, as much as a hundred usual ones.

/// The bytes that were not read.
struct Rest<'b>(&'b [u8]);

/// Whether a head has more fields than this. A malformed one has not: h3 refuses it where it is wrong.
pub fn has_more_fields(head: &[u8], most: usize) -> bool {
    let mut rest = Rest(head);
    // The state of the dynamic table, which is always empty.
    let begun = rest.integer(8).and_then(|_| rest.integer(7));
    begun.is_some() && (0..=most).all(|_| rest.skip_field().is_some())
}

// === impl Rest ===

impl Rest<'_> {
    fn skip_field(&mut self) -> Option<()> {
        match self.0.first()? {
            // A field of a table, by its index.
            0x80.. => self.integer(6).map(drop),
            0x10..=0x1f => self.integer(4).map(drop),
            // A name of a table with a value.
            0x40..=0x7f => self.integer(4).and_then(|_| self.skip_text(7)),
            0x00..=0x0f => self.integer(3).and_then(|_| self.skip_text(7)),
            // A name and a value.
            0x20..=0x3f => self.skip_text(3).and_then(|()| self.skip_text(7)),
        }
    }

    fn skip_text(&mut self, prefix: u32) -> Option<()> {
        let length = usize::try_from(self.integer(prefix)?).ok()?;
        self.0 = self.0.get(length..)?;
        Some(())
    }

    /// An integer whose first part has this number of bits (RFC 7541, 5.1).
    fn integer(&mut self, prefix: u32) -> Option<u64> {
        let most = (1 << prefix) - 1;
        let mut value = u64::from(self.byte()?) & most;
        if value < most {
            return Some(value);
        }
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value = value.checked_add(u64::from(byte & 127) << shift)?;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_field_counts_once() {
        // By index, by a long index, with the name of a table, with the name of the dynamic one, and with a name that is
        // written out.
        let long = [&[0x27, 0x01][..], &[b'a'; 8], &[0x7f, 0x80, 0x01], &[b'b'; 255]].concat();
        let forms: [&[u8]; 7] =
            [&[0xd1], &[0xff, 0x05], &[0x51, 2, b'x', b'y'], &[0x10], &[0x01, 1, b'z'], &[0x21, b'a', 0], &long];
        let head = [&[0, 0][..], &forms.concat()].concat();
        assert!(has_more_fields(&head, 6) && !has_more_fields(&head, 7));
        for (count, form) in forms.iter().enumerate() {
            let head = [&[0, 0][..], &forms[..count].concat(), &form[..form.len() - 1]].concat();
            assert!(!has_more_fields(&head, count), "the last one is cut off: {head:?}");
        }
    }

    #[test]
    fn a_malformed_head_has_an_end() {
        for head in [&[][..], &[0], &[0, 0], &[0xff; 100], &[0, 0, 0x7f], &[0, 0, 0x27, 0xff, 0xff, 0xff]] {
            assert!(!has_more_fields(head, 0), "{head:?}");
        }
        let endless = [&[0, 0, 0x51, 0x7f][..], &[0xff; 20]].concat();
        assert!(!has_more_fields(&endless, 0));
    }
}
