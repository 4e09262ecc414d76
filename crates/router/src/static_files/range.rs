//! Range requests (RFC 9110, section 14): which bytes of a file a client asks for.
//!
//! [`select`] is a pure function of the header and the length. One satisfiable range is [`Selection::Single`], several
//! are [`Selection::Several`] for a `multipart/byteranges` answer, none is [`Selection::Unsatisfiable`].
//!
//! A header that is invalid, names another unit, or asks for too much (more than [`MAX_RANGES`] ranges, or more
//! bytes than the file has, which overlapping ranges do) selects [`Selection::Whole`]: a server may always ignore Range.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderValue;

/// The limit for the ranges of one request.
const MAX_RANGES: usize = 16;

/// The part of a file that a request selects; ranges are not empty and lie within the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// 200
    Whole,
    /// 206
    Single(Range<u64>),
    /// 206, multipart/byteranges: at least two, in the order of the request.
    Several(Vec<Range<u64>>),
    /// 416
    Unsatisfiable,
}

pub(super) fn select(header: &HeaderValue, length: u64) -> Selection {
    let Some(ranges) = parse(header.as_bytes(), length) else { return Selection::Whole };
    let bytes = ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.end - range.start));
    if bytes > length {
        return Selection::Whole;
    }
    match ranges.as_slice() {
        [] => Selection::Unsatisfiable,
        [single] => Selection::Single(single.clone()),
        _ => Selection::Several(ranges),
    }
}

/// The `Content-Range` of a part, or of a 416, which has no part.
pub(super) fn content_range(range: Option<&Range<u64>>, length: u64) -> HeaderValue {
    let text = match range {
        Some(range) => format!("bytes {}-{}/{length}", range.start, range.end - 1),
        None => format!("bytes */{length}"),
    };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("bytes */*")) // digits are always a header value
}

/// The frame of a multipart/byteranges body: the text before each part, and after the last one.
pub(super) struct Multipart {
    pub(super) content_type: HeaderValue,
    pub(super) parts: Vec<(Bytes, Range<u64>)>,
    pub(super) end: Bytes,
}

impl Multipart {
    /// `boundary` must not occur in the file: the caller draws it at random.
    pub(super) fn new(
        boundary: &str,
        ranges: Vec<Range<u64>>,
        content_type: Option<&HeaderValue>,
        length: u64,
    ) -> Self {
        let parts = ranges.into_iter().enumerate().map(|(index, range)| {
            let mut head = Vec::with_capacity(160);
            head.extend_from_slice(if index == 0 { b"--" } else { b"\r\n--" });
            head.extend_from_slice(boundary.as_bytes());
            if let Some(content_type) = content_type {
                head.extend_from_slice(b"\r\nContent-Type: ");
                head.extend_from_slice(content_type.as_bytes());
            }
            head.extend_from_slice(b"\r\nContent-Range: ");
            head.extend_from_slice(content_range(Some(&range), length).as_bytes());
            head.extend_from_slice(b"\r\n\r\n");
            (Bytes::from(head), range)
        });
        let type_text = format!("multipart/byteranges; boundary={boundary}");
        Self {
            parts: parts.collect(),
            end: Bytes::from(format!("\r\n--{boundary}--\r\n")),
            // A boundary is always a header value.
            content_type: HeaderValue::try_from(type_text).unwrap_or(HeaderValue::from_static("multipart/byteranges")),
        }
    }
}

/// The satisfiable ranges; `None` if the header is to be ignored.
fn parse(header: &[u8], length: u64) -> Option<Vec<Range<u64>>> {
    let (unit, set) = header.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut asked = 0;
    let mut ranges = Vec::new();
    for spec in set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        asked += 1;
        let dash = spec.iter().position(|&byte| byte == b'-')?;
        let range = match (&spec[..dash], &spec[dash + 1..]) {
            // All bytes of an empty file are satisfiable, but no Content-Range can express it.
            ([], _) if length == 0 => return None,
            ([], suffix) => length.saturating_sub(number(suffix)?)..length,
            (first, []) => number(first)?..length,
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                first..length.min(last.saturating_add(1))
            }
        };
        if asked > MAX_RANGES {
            return None;
        }
        if range.start < range.end {
            ranges.push(range);
        }
    }
    (asked > 0).then_some(ranges)
}

/// A number that is too large for `u64` saturates: it is beyond the end of any file.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |value: u64, digit| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(header: &str, length: u64) -> Selection {
        select(&HeaderValue::from_str(header).unwrap(), length)
    }

    #[test]
    fn a_single_range_is_cut_to_the_file() {
        for (header, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-99", 0..100),
            ("bytes=0-100", 0..100),
            ("bytes=10-19", 10..20),
            ("bytes=10-", 10..100),
            ("bytes=99-", 99..100),
            ("bytes=-1", 99..100),
            ("bytes=-100", 0..100),
            ("bytes=-1000", 0..100),
            ("bytes=0-18446744073709551615", 0..100),
            ("bytes=5-99999999999999999999999999", 5..100),
            ("bytes=-99999999999999999999999999", 0..100),
            ("Bytes=1-2", 1..3),
            ("bytes= 1-2 ", 1..3),
            ("bytes=1-2,", 1..3),
            ("bytes=1-2,200-", 1..3), // the other one cannot be satisfied
            ("bytes=001-002", 1..3),
        ] {
            assert_eq!(selected(header, 100), Selection::Single(expected), "{header}");
        }
    }

    #[test]
    fn unsatisfiable_ranges_are_recognized() {
        for header in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999-", "bytes=100-,200-300"] {
            assert_eq!(selected(header, 100), Selection::Unsatisfiable, "{header}");
        }
        assert_eq!(selected("bytes=0-", 0), Selection::Unsatisfiable);
    }

    #[test]
    fn an_invalid_header_is_ignored() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes=5-4",
            "bytes=+1-2",
            "items=0-1",
            "bytes 0-1",
            "bytes=0-1;2-3",
            "bytes=1",
            "bytes=0-1,x",
            "bytes=0x1-2",
            "bytes=1 - 2",
            "bytes=--1",
        ] {
            assert_eq!(selected(header, 100), Selection::Whole, "{header}");
        }
        assert_eq!(selected("bytes=-5", 0), Selection::Whole);
    }

    #[test]
    fn several_ranges_stay_in_order() {
        let table = [
            ("bytes=0-1,5-6", vec![0..2, 5..7]),
            ("bytes=50-, 0-0,-1", vec![50..100, 0..1, 99..100]),
            ("bytes=0-0,,300-,2-2", vec![0..1, 2..3]),
        ];
        for (header, expected) in table {
            assert_eq!(selected(header, 100), Selection::Several(expected), "{header}");
        }
    }

    #[test]
    fn a_request_for_too_much_gets_the_whole_file() {
        assert_eq!(selected("bytes=0-99,0-0", 100), Selection::Whole);
        assert_eq!(selected("bytes=0-,0-,0-", 100), Selection::Whole);
        let of = |count: u64| (0..count).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
        assert_eq!(selected(&format!("bytes={}", of(17)), 100), Selection::Whole);
        let Selection::Several(ranges) = selected(&format!("bytes={}", of(16)), 100) else { panic!("16 are allowed") };
        assert_eq!(ranges.len(), 16);
    }

    #[test]
    fn a_multipart_frame_has_the_type_and_the_range_of_each_part() {
        let multipart = Multipart::new("B", vec![0..2, 5..7], Some(&HeaderValue::from_static("text/x")), 9);
        assert_eq!(multipart.content_type, "multipart/byteranges; boundary=B");
        assert_eq!(multipart.parts[0].0, "--B\r\nContent-Type: text/x\r\nContent-Range: bytes 0-1/9\r\n\r\n");
        assert_eq!(multipart.parts[1].0, "\r\n--B\r\nContent-Type: text/x\r\nContent-Range: bytes 5-6/9\r\n\r\n");
        assert_eq!(multipart.end, "\r\n--B--\r\n");
        let untyped = Multipart::new("B", vec![0..2, 5..7], None, 9);
        assert_eq!(untyped.parts[0].0, "--B\r\nContent-Range: bytes 0-1/9\r\n\r\n");
    }
}
