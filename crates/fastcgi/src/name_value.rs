//! Lists of names and values: the length of the name, the length of the value, the name, the value. A length below 128 is
//! one byte; a longer one has four bytes, big endian, with the highest bit set.

/// The longest name or value, in bytes.
pub const MAX_LENGTH: usize = 0x7fff_ffff;

/// Appends a pair. Names and values beyond [`MAX_LENGTH`] do not occur: heads of requests have a limit.
pub fn write(list: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    debug_assert!(name.len() <= MAX_LENGTH && value.len() <= MAX_LENGTH, "the head of a request has a limit");
    write_length(list, name.len());
    write_length(list, value.len());
    list.extend_from_slice(name);
    list.extend_from_slice(value);
}

/// The pairs of a complete list. `None` marks the place where the list is broken; nothing follows it.
pub fn pairs(list: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest.take().filter(|list| !list.is_empty())?;
        match split_pair(list) {
            Some((name, value, after)) => {
                rest = Some(after);
                Some(Some((name, value)))
            }
            None => Some(None),
        }
    })
}

fn write_length(list: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => list.push(short),
        _ => list.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes()),
    }
}

fn split_pair(list: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, list) = split_length(list)?;
    let (value, list) = split_length(list)?;
    let (name, list) = list.split_at_checked(name)?;
    let (value, list) = list.split_at_checked(value)?;
    Some((name, value, list))
}

fn split_length(list: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = list.split_first()?;
    if *first < 0x80 {
        return Some((usize::from(*first), rest));
    }
    let (length, rest) = list.split_first_chunk::<4>()?;
    Some(((u32::from_be_bytes(*length) & 0x7fff_ffff) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_pairs_are_read_as_they_were_written() {
        let lengths = [0, 1, 127, 128, 255, 256, 70_000];
        let mut list = Vec::new();
        for (name, value) in lengths.iter().zip(lengths.iter().rev()) {
            write(&mut list, &vec![b'n'; *name], &vec![b'v'; *value]);
        }
        let read: Vec<_> =
            pairs(&list).map(|pair| pair.map(|(name, value)| (name.len(), value.len())).expect("a pair")).collect();
        assert_eq!(read, lengths.into_iter().zip(lengths.into_iter().rev()).collect::<Vec<_>>());
    }

    #[test]
    fn a_short_length_has_one_byte() {
        let mut list = Vec::new();
        write(&mut list, b"A", b"xy");
        assert_eq!(list, b"\x01\x02Axy");
    }

    #[test]
    fn a_broken_list_ends_with_none() {
        for list in [&b"\x01"[..], b"\x01\x02Ax", b"\x80\x00\x00", b"\xff\xff\xff\xff\x00A"] {
            assert_eq!(pairs(list).collect::<Vec<_>>(), [None], "{list:?}");
        }
        assert_eq!(pairs(b"\x01\x00A\x05").collect::<Vec<_>>(), [Some((&b"A"[..], &b""[..])), None]);
        assert_eq!(pairs(b"").count(), 0);
    }
}
