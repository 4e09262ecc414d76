//! The field `Priority` of a request, of a response, and of a PRIORITY_UPDATE frame.
//!
//! The field is a dictionary of structured fields (RFC 9651). One that is not is ignored, and so are members that are
//! unknown, or have another type or a value out of their range.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::str;

/// The members of a field that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityField {
    /// `u`: 0 is the most urgent.
    urgency: Option<u8>,
    /// `i`: whether the client uses the parts of the response as they come.
    is_incremental: Option<bool>,
}

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Whether it takes turns with others of its urgency.
    pub is_incremental: bool,
}

/// A value of a dictionary.
enum Value {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// The rest of a field.
struct Rest<'a>(&'a [u8]);

const PRIORITY: HeaderName = HeaderName::from_static("priority");
const USUAL_URGENCY: u8 = 3;
const LEAST_URGENCY: i64 = 7;

// === impl PriorityField ===

impl PriorityField {
    /// The field of a message.
    pub fn of(headers: &HeaderMap) -> PriorityField {
        let mut values = headers.get_all(PRIORITY).iter().map(HeaderValue::as_bytes);
        match (values.next(), values.next()) {
            (None, _) => PriorityField::default(),
            (Some(value), None) => PriorityField::parse(value),
            (Some(first), Some(second)) => {
                let all: Vec<_> = [first, second].into_iter().chain(values).collect();
                PriorityField::parse(&all.join(&b", "[..]))
            }
        }
    }

    /// Reads a field.
    pub fn parse(field: &[u8]) -> PriorityField {
        Rest(field).dictionary().unwrap_or_default()
    }

    /// The field, changed by the members of another one.
    pub fn changed_by(self, other: PriorityField) -> PriorityField {
        PriorityField {
            urgency: other.urgency.or(self.urgency),
            is_incremental: other.is_incremental.or(self.is_incremental),
        }
    }

    /// The priority. Responses without one take turns: their client may be a proxy with clients of its own.
    pub fn priority(self) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(USUAL_URGENCY),
            is_incremental: self.is_incremental.unwrap_or(self.urgency.is_none()),
        }
    }
}

// === impl Rest ===

impl<'a> Rest<'a> {
    fn dictionary(mut self) -> Option<PriorityField> {
        let mut field = PriorityField::default();
        self.skip(b" ");
        while !self.0.is_empty() {
            let key = self.key()?;
            let value = match self.take(b'=') {
                true => self.value()?,
                false => Value::Boolean(true),
            };
            self.parameters()?;
            // The last one of several counts.
            match (key, value) {
                (b"u", Value::Integer(urgency @ 0..=LEAST_URGENCY)) => field.urgency = Some(urgency as u8),
                (b"u", _) => field.urgency = None,
                (b"i", Value::Boolean(is_incremental)) => field.is_incremental = Some(is_incremental),
                (b"i", _) => field.is_incremental = None,
                _ => {}
            }
            self.skip(b" \t");
            if self.0.is_empty() {
                break;
            }
            if !self.take(b',') {
                return None;
            }
            self.skip(b" \t");
            if self.0.is_empty() {
                return None;
            }
        }
        Some(field)
    }

    fn value(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                self.take(b'?');
                let is_true = self.take(b'1');
                (is_true || self.take(b'0')).then_some(Value::Boolean(is_true))
            }
            b'@' => {
                self.take(b'@');
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'"' => self.string(),
            b'%' => self.display_string(),
            b':' => {
                self.take(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Value::Other)
            }
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.take(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_decimal = (1..=12).contains(&digits.len()) && (1..=3).contains(&fraction.len());
            return is_decimal.then_some(Value::Other);
        }
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        let number: i64 = str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Value::Integer(if is_negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        self.take(b'"');
        loop {
            self.take_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
            if self.take(b'"') {
                return Some(Value::Other);
            }
            if !(self.take(b'\\') && (self.take(b'"') || self.take(b'\\'))) {
                return None;
            }
        }
    }

    fn display_string(&mut self) -> Option<Value> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !(self.take(b'%') && self.take(b'"')) {
            return None;
        }
        loop {
            self.take_while(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'%');
            if self.take(b'"') {
                return Some(Value::Other);
            }
            let &[b'%', high, low, ..] = self.0 else { return None };
            if !(is_hex(high) && is_hex(low)) {
                return None;
            }
            self.0 = &self.0[3..];
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.0.iter().position(|byte| !belongs(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|byte| bytes.contains(&byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(urgency: Option<u8>, is_incremental: Option<bool>) -> PriorityField {
        PriorityField { urgency, is_incremental }
    }

    #[test]
    fn fields_are_read() {
        let none = of(None, None);
        let table: &[(&str, PriorityField)] = &[
            ("", none),
            ("u=0", of(Some(0), None)),
            ("u=7, i", of(Some(7), Some(true))),
            ("  u=5,i=?0  ", of(Some(5), Some(false))),
            ("i\t,\tu=1", of(Some(1), Some(true))),
            ("u=1;a=b;c, i;d=?0", of(Some(1), Some(true))),
            ("u=1, u=2", of(Some(2), None)),
            ("u=1, u=9", none),
            ("i, i=1", none),
            ("u=-0", of(Some(0), None)),
            ("u=007", of(Some(7), None)),
            // Out of range, or of another type.
            ("u=8, i", of(None, Some(true))),
            ("u=-1", none),
            ("u=1.0", none),
            ("u=\"1\"", none),
            ("u", none),
            ("u=?1", none),
            ("u=a, i=a", none),
            ("u=(1 2)", none),
            // Unknown members of all types.
            (
                "a, b=1, c=-1.5, d=\"x, \\\" \\\\ y\", e=to/k:en, f=:aGk=:, g=@123, h=%\"f%c3%bc\", u=2",
                of(Some(2), None),
            ),
            ("x=(), y=( a  \"b\";c 1 );d, u=2", of(Some(2), None)),
            ("*a_-.*9=1, u=2", of(Some(2), None)),
            // No dictionary.
            ("u=1,", none),
            ("u=1, ", none),
            (",u=1", none),
            ("u=1,,i", none),
            ("u=1 i", none),
            ("u= 1", none),
            ("u =1", none),
            ("u=", none),
            ("U=1", none),
            ("u=1, I", none),
            ("u=1, 9=1", none),
            ("\tu=1", none),
            ("u=1, a=\"b", none),
            ("u=1, a=\"\\x\"", none),
            ("u=1, a=\"\u{e9}\"", none),
            ("u=1, a=:b", none),
            ("u=1, a=@1.5", none),
            ("u=1, a=?2", none),
            ("u=1, a=%\"%C3\"", none),
            ("u=1, a=%\"%c", none),
            ("u=1, a=(b", none),
            ("u=1, a=(b,c)", none),
            ("u=1, a=(b(c))", none),
            ("u=1;", none),
            ("u=1;=2", none),
            ("u=1234567890123456", none),
            ("u=1.2345", none),
            ("u=1.", none),
            ("u=--1", none),
            ("u=1\0", none),
        ];
        for (field, expected) in table {
            assert_eq!(PriorityField::parse(field.as_bytes()), *expected, "{field:?}");
        }
    }

    #[test]
    fn several_headers_are_one_field() {
        let mut headers = HeaderMap::new();
        assert_eq!(PriorityField::of(&headers), of(None, None));
        for (value, expected) in [("u=1", of(Some(1), None)), ("i", of(Some(1), Some(true))), ("\"", of(None, None))] {
            headers.append(PRIORITY, HeaderValue::from_static(value));
            assert_eq!(PriorityField::of(&headers), expected);
        }
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        let pieces: &[&[u8]] = &[
            b"u=", b"i", b"=?1", b"1", b"9", b",", b" ", b"\t", b"(", b")", b";", b"a", b"=", b"\"", b"\\", b":", b"@",
            b"%\"", b"%c3", b"-", b".", b"\xff", b"\0", b"*",
        ];
        let mut seed = 18_u64;
        let mut next = |limit: usize| {
            // xorshift64
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % limit as u64) as usize
        };
        let mut valid = 0;
        for _ in 0..100_000 {
            let field: Vec<u8> = (0..next(12)).flat_map(|_| pieces[next(pieces.len())]).copied().collect();
            let read = Rest(&field).dictionary();
            valid += usize::from(read.is_some());
            let Some(read) = read else { continue };
            assert!(read.urgency.is_none_or(|urgency| urgency <= 7), "{field:?}");
            // A member before and one behind it change nothing else.
            if !field.is_empty() && !field.iter().all(|byte| *byte == b' ') {
                let longer = [b"other=1, ".as_slice(), field.trim_ascii(), b", last"].concat();
                assert_eq!(Rest(&longer).dictionary(), Some(read), "{field:?}");
            }
        }
        assert!(valid > 5000, "{valid}");
    }

    #[test]
    fn a_response_changes_members_that_it_has() {
        let client = PriorityField::parse(b"u=5, i");
        assert_eq!(client.changed_by(PriorityField::parse(b"u=1")), of(Some(1), Some(true)));
        assert_eq!(client.changed_by(PriorityField::default()), client);
        let priority = |field: &[u8]| PriorityField::parse(field).priority();
        assert_eq!(priority(b""), Priority { urgency: 3, is_incremental: true });
        assert_eq!(priority(b"u=3"), Priority { urgency: 3, is_incremental: false });
        assert_eq!(priority(b"i"), Priority { urgency: 3, is_incremental: true });
    }
}
