//! Conditional requests (RFC 9110, section 13): does the client have this version already, or insist on another one?
//!
//! [`evaluate`] applies the preconditions in the order of section 13.2.2. Our entity tags are strong; If-Match and
//! If-Range compare strongly, If-None-Match weakly. Pure: the clock is an argument.
//!
//! A date that does not parse is ignored, as the RFC asks. An entity-tag list is read up to its first mistake; what
//! comes after it matches nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED},
};

/// The headers that distinguish one version of a file from another.
pub(super) struct Validators {
    /// A strong entity tag, with its quotes.
    pub(super) etag: HeaderValue,
    /// Absent when the file's time cannot be written as a date, or lies in the future.
    pub(super) last_modified: Option<LastModified>,
}

/// A modification time, in the precision of HTTP.
pub(super) struct LastModified {
    header: HeaderValue,
    /// Whole seconds after the epoch.
    seconds: u64,
}

/// The result of the preconditions of a GET or HEAD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preconditions {
    /// All hold, or there are no preconditions.
    Hold,
    /// The client has this version: 304.
    NotModified,
    /// The client requires another version: 412.
    Failed,
}

pub(super) fn evaluate(headers: &HeaderMap, current: &Validators) -> Preconditions {
    if headers.contains_key(IF_MATCH) {
        if !names_current(headers, &IF_MATCH, current, Comparison::Strong) {
            return Preconditions::Failed;
        }
    } else if let Some(since) = headers.get(IF_UNMODIFIED_SINCE)
        && modified_since(since, current) == Some(true)
    {
        return Preconditions::Failed;
    }
    let not_modified = if headers.contains_key(IF_NONE_MATCH) {
        names_current(headers, &IF_NONE_MATCH, current, Comparison::Weak)
    } else {
        headers.get(IF_MODIFIED_SINCE).is_some_and(|since| modified_since(since, current) == Some(false))
    };
    if not_modified { Preconditions::NotModified } else { Preconditions::Hold }
}

/// Whether a Range header applies: there is no If-Range, or it names the current version with certainty.
pub(super) fn range_applies(headers: &HeaderMap, current: &Validators, now: SystemTime) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    if value.as_bytes().contains(&b'"') {
        return names_current(headers, &IF_RANGE, current, Comparison::Strong);
    }
    let (Some(modified), Some(date)) = (&current.last_modified, seconds(value)) else { return false };
    // A file that changed in this very second may change again within it: its date is a weak validator (8.8.2.2).
    let strong = UNIX_EPOCH + Duration::from_secs(modified.seconds + 1) <= now;
    strong && modified.seconds == date
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn names_current(headers: &HeaderMap, name: &HeaderName, current: &Validators, comparison: Comparison) -> bool {
    headers.get_all(name).iter().any(|list| {
        let list = list.as_bytes().trim_ascii();
        list == b"*"
            || EntityTags(list)
                .any(|(weak, tag)| tag == current.etag.as_bytes() && !(weak && comparison == Comparison::Strong))
    })
}

/// The entity tags of a list, quotes included, each with whether it is marked as weak.
struct EntityTags<'a>(&'a [u8]);

impl<'a> Iterator for EntityTags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let (weak, tagged) = match self.0 {
            [b'W', b'/', tagged @ ..] => (true, tagged),
            tagged => (false, tagged),
        };
        let [b'"', opaque @ ..] = tagged else {
            self.0 = &[];
            return None;
        };
        let Some(length) = opaque.iter().position(|&byte| byte == b'"') else {
            self.0 = &[];
            return None;
        };
        let (tag, rest) = tagged.split_at(length + 2);
        self.0 = rest;
        Some((weak, tag))
    }
}

/// `None` when there is nothing to compare: no date of ours, or none in the header.
fn modified_since(date: &HeaderValue, current: &Validators) -> Option<bool> {
    let modified = current.last_modified.as_ref()?;
    // Clients send our own date back; then nothing needs to be parsed.
    if *date == modified.header {
        return Some(false);
    }
    Some(modified.seconds > seconds(date)?)
}

fn seconds(date: &HeaderValue) -> Option<u64> {
    let date = httpdate::parse_http_date(date.to_str().ok()?.trim()).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

impl Validators {
    pub(super) fn insert_into(&self, headers: &mut HeaderMap) {
        headers.insert(ETAG, self.etag.clone());
        if let Some(last_modified) = &self.last_modified {
            headers.insert(LAST_MODIFIED, last_modified.header.clone());
        }
    }
}

impl LastModified {
    /// `None` for a time that HTTP cannot write (before 1970, after 9999) or must not send (after `now`).
    pub(super) fn new(seconds_after_epoch: i64, now: SystemTime) -> Option<Self> {
        const YEAR_10000: u64 = 253_402_300_800;
        let seconds = u64::try_from(seconds_after_epoch).ok().filter(|&seconds| seconds < YEAR_10000)?;
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        if time > now {
            return None;
        }
        let header = HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()?;
        Some(Self { header, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEWER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const SAME_SECONDS: i64 = 784_111_777;

    fn at(seconds: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds as u64)
    }

    fn current() -> Validators {
        let last_modified = LastModified::new(SAME_SECONDS, at(SAME_SECONDS + 3600));
        Validators { etag: HeaderValue::from_static("\"a\""), last_modified }
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn preconditions_are_taken_in_the_order_of_the_rfc() {
        use Preconditions::{Failed, Hold, NotModified};
        const MATCH: &str = "if-match";
        const NONE: &str = "if-none-match";
        const SINCE: &str = "if-modified-since";
        const UNMODIFIED: &str = "if-unmodified-since";
        let table: &[(&[(&'static str, &str)], Preconditions)] = &[
            (&[], Hold),
            (&[(NONE, "\"a\"")], NotModified),
            (&[(NONE, "W/\"a\"")], NotModified),
            (&[(NONE, "*")], NotModified),
            (&[(NONE, " * ")], NotModified),
            (&[(NONE, "\"b\"")], Hold),
            (&[(NONE, "\"b\", W/\"c\",, \"a\"")], NotModified),
            (&[(NONE, "\"b,\"a\"")], Hold),
            (&[(NONE, "\"b, \" , \"a\"")], NotModified),
            (&[(NONE, "\"b\""), (NONE, "\"a\"")], NotModified),
            (&[(NONE, "a")], Hold),
            (&[(NONE, "w/\"a\"")], Hold),
            (&[(NONE, "\"a")], Hold),
            (&[(NONE, "")], Hold),
            (&[(NONE, "\"A\"")], Hold),
            (&[(SINCE, SAME)], NotModified),
            (&[(SINCE, NEWER)], NotModified),
            (&[(SINCE, OLDER)], Hold),
            (&[(SINCE, "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified),
            (&[(SINCE, "Sun Nov  6 08:49:37 1994")], NotModified),
            (&[(SINCE, "yesterday")], Hold),
            (&[(SINCE, "")], Hold),
            // If-None-Match overrules If-Modified-Since, both ways
            (&[(NONE, "\"b\""), (SINCE, SAME)], Hold),
            (&[(NONE, "\"a\""), (SINCE, OLDER)], NotModified),
            (&[(MATCH, "\"a\"")], Hold),
            (&[(MATCH, "*")], Hold),
            (&[(MATCH, "\"b\"")], Failed),
            (&[(MATCH, "W/\"a\"")], Failed),
            (&[(MATCH, "\"b\", \"a\"")], Hold),
            (&[(UNMODIFIED, SAME)], Hold),
            (&[(UNMODIFIED, NEWER)], Hold),
            (&[(UNMODIFIED, OLDER)], Failed),
            (&[(UNMODIFIED, "yesterday")], Hold),
            // If-Match overrules If-Unmodified-Since, both ways
            (&[(MATCH, "\"a\""), (UNMODIFIED, OLDER)], Hold),
            (&[(MATCH, "\"b\""), (UNMODIFIED, SAME)], Failed),
            // a precondition that fails has priority over "not modified"
            (&[(MATCH, "\"a\""), (NONE, "\"a\"")], NotModified),
            (&[(MATCH, "\"b\""), (NONE, "\"a\"")], Failed),
            (&[(UNMODIFIED, OLDER), (SINCE, SAME)], Failed),
        ];
        for (lines, expected) in table {
            assert_eq!(evaluate(&headers(lines), &current()), *expected, "{lines:?}");
        }
    }

    #[test]
    fn without_a_date_of_ours_dates_are_ignored() {
        let current = Validators { last_modified: None, ..current() };
        for name in ["if-modified-since", "if-unmodified-since"] {
            assert_eq!(evaluate(&headers(&[(name, SAME)]), &current), Preconditions::Hold, "{name}");
        }
        assert!(!range_applies(&headers(&[("if-range", SAME)]), &current, at(SAME_SECONDS + 9)));
    }

    #[test]
    fn a_range_applies_to_the_version_that_the_client_has() {
        let table = [
            ("\"a\"", 3600, true),
            ("W/\"a\"", 3600, false),
            ("\"b\"", 3600, false),
            (SAME, 3600, true),
            (SAME, 1, true),
            (SAME, 0, false), // it may change again in this second
            (OLDER, 3600, false),
            (NEWER, 3600, false),
            ("nonsense", 3600, false),
        ];
        for (value, age, expected) in table {
            let headers = headers(&[("if-range", value)]);
            assert_eq!(range_applies(&headers, &current(), at(SAME_SECONDS + age)), expected, "{value}");
        }
        assert!(range_applies(&HeaderMap::new(), &current(), at(SAME_SECONDS)));
    }

    #[test]
    fn a_time_that_http_cannot_write_has_no_header() {
        let now = at(SAME_SECONDS);
        for (seconds, written) in [
            (0, true),
            (SAME_SECONDS, true),
            (-1, false),
            (SAME_SECONDS + 1, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(LastModified::new(seconds, now).is_some(), written, "{seconds}");
        }
    }
}
