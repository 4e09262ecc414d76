//! The format of a request's head in a slot: its CGI variables, ready for PHP.
//!
//! ```text
//! head:     count u32 | variable …
//! variable: code u16 | name length u16 | value length u32 | name | NUL | value | NUL      (little endian)
//! ```
//!
//! A variable that every request has travels as its place in [`NAMES`]: the worker holds those names ready, hashed, as
//! PHP strings. Others (uncommon `HTTP_*`) carry their name, and the code [`CUSTOM`]. The NULs make C strings of them.

use crate::violation::Violation;

/// The variables that travel as a number: RFC 3875's, those that nginx and FPM add, and the usual headers.
pub const NAMES: [&str; 46] = [
    "REQUEST_METHOD",
    "REQUEST_URI",
    "QUERY_STRING",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "SCRIPT_NAME",
    "SCRIPT_FILENAME",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "SERVER_NAME",
    "SERVER_ADDR",
    "SERVER_PORT",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REQUEST_SCHEME",
    "HTTPS",
    "GATEWAY_INTERFACE",
    "REDIRECT_STATUS",
    "HTTP_AUTHORIZATION",
    "HTTP_COOKIE",
    "HTTP_HOST",
    "HTTP_USER_AGENT",
    "HTTP_ACCEPT",
    "HTTP_ACCEPT_ENCODING",
    "HTTP_ACCEPT_LANGUAGE",
    "HTTP_REFERER",
    "HTTP_CONNECTION",
    "HTTP_CACHE_CONTROL",
    "HTTP_UPGRADE_INSECURE_REQUESTS",
    "HTTP_ORIGIN",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_REQUESTED_WITH",
    "HTTP_IF_NONE_MATCH",
    "HTTP_IF_MODIFIED_SINCE",
    "HTTP_SEC_FETCH_DEST",
    "HTTP_SEC_FETCH_MODE",
    "HTTP_SEC_FETCH_SITE",
    "HTTP_RANGE",
    "HTTP_PRAGMA",
    "HOWDAH_WARM_UP",
];

/// The code of a variable that carries its name.
pub const CUSTOM: u16 = u16::MAX;

/// Codes of the variables that the worker itself asks for: places in [`NAMES`].
pub mod code {
    #![allow(missing_docs)]
    pub const REQUEST_METHOD: u16 = 0;
    pub const REQUEST_URI: u16 = 1;
    pub const QUERY_STRING: u16 = 2;
    pub const CONTENT_TYPE: u16 = 3;
    pub const CONTENT_LENGTH: u16 = 4;
    pub const SCRIPT_NAME: u16 = 5;
    pub const SCRIPT_FILENAME: u16 = 6;
    pub const PATH_INFO: u16 = 7;
    pub const PATH_TRANSLATED: u16 = 8;
    pub const DOCUMENT_ROOT: u16 = 9;
    pub const DOCUMENT_URI: u16 = 10;
    pub const SERVER_PROTOCOL: u16 = 11;
    pub const SERVER_SOFTWARE: u16 = 12;
    pub const SERVER_NAME: u16 = 13;
    pub const SERVER_ADDR: u16 = 14;
    pub const SERVER_PORT: u16 = 15;
    pub const REMOTE_ADDR: u16 = 16;
    pub const REMOTE_PORT: u16 = 17;
    pub const REQUEST_SCHEME: u16 = 18;
    pub const HTTPS: u16 = 19;
    pub const GATEWAY_INTERFACE: u16 = 20;
    pub const REDIRECT_STATUS: u16 = 21;
    pub const HTTP_AUTHORIZATION: u16 = 22;
    pub const HTTP_COOKIE: u16 = 23;
    pub const HTTP_HOST: u16 = 24;
    pub const HTTP_USER_AGENT: u16 = 25;
    pub const HOWDAH_WARM_UP: u16 = 45;
}

/// The last place in [`NAMES`] of a name with each length, and before each place the previous one of this length: a
/// name is compared with a few others only. [`NO_PLACE`] ends each chain.
const LAST_OF_LENGTH: [u8; MAX_NAME_LENGTH + 1] = places_by_length().0;
const PREVIOUS_OF_LENGTH: [u8; NAMES.len()] = places_by_length().1;
const NO_PLACE: u8 = u8::MAX;
const MAX_NAME_LENGTH: usize = 30;

const fn places_by_length() -> ([u8; MAX_NAME_LENGTH + 1], [u8; NAMES.len()]) {
    let mut last = [NO_PLACE; MAX_NAME_LENGTH + 1];
    let mut previous = [NO_PLACE; NAMES.len()];
    let mut place = 0;
    while place < NAMES.len() {
        let length = NAMES[place].len();
        previous[place] = last[length];
        last[length] = place as u8;
        place += 1;
    }
    (last, previous)
}

/// The place of a name in [`NAMES`].
fn place_of(name: &[u8]) -> Option<u16> {
    let mut place = *LAST_OF_LENGTH.get(name.len())?;
    while place != NO_PLACE && NAMES[usize::from(place)].as_bytes() != name {
        place = PREVIOUS_OF_LENGTH[usize::from(place)];
    }
    (place != NO_PLACE).then_some(place.into())
}

/// Collects the variables of a request. Reused from one request to the next.
#[derive(Debug, Default)]
pub struct RequestHeadWriter {
    bytes: Vec<u8>,
    count: u32,
}

/// One variable of a head that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's place in [`NAMES`], or [`CUSTOM`].
    pub code: u16,
    /// Where its name begins in the head (empty unless custom). A NUL follows it.
    pub name: (u32, u32),
    /// Where its value begins in the head, and its length. A NUL follows it.
    pub value: (u32, u32),
}

// === impl RequestHeadWriter ===

impl RequestHeadWriter {
    /// Begins the head of another request.
    pub fn restart(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 4]);
        self.count = 0;
    }

    /// Adds a variable of [`NAMES`].
    pub fn known(&mut self, code: u16, value: &[u8]) {
        debug_assert!(usize::from(code) < NAMES.len());
        self.entry(code, b"", value);
    }

    /// Adds a variable by its name; a name that is in [`NAMES`] travels as its number.
    pub fn named(&mut self, name: &[u8], value: &[u8]) {
        match place_of(name) {
            Some(code) => self.entry(code, b"", value),
            None => self.entry(CUSTOM, name, value),
        }
    }

    /// The head, for [`crate::RouterEnd::submit`].
    pub fn finish(&mut self) -> &[u8] {
        self.bytes[..4].copy_from_slice(&self.count.to_le_bytes());
        &self.bytes
    }

    fn entry(&mut self, code: u16, name: &[u8], value: &[u8]) {
        // A name beyond 64 KiB makes the head too large anyway: the router refuses such a request.
        let [c0, c1] = code.to_le_bytes();
        let [n0, n1] = (name.len() as u16).to_le_bytes();
        let [v0, v1, v2, v3] = (value.len() as u32).to_le_bytes();
        // With the NUL of an empty name: nearly all names are.
        self.bytes.extend_from_slice(&[c0, c1, n0, n1, v0, v1, v2, v3, 0]);
        if !name.is_empty() {
            self.bytes.pop();
            self.bytes.extend_from_slice(name);
            self.bytes.push(0);
        }
        self.bytes.extend_from_slice(value);
        self.bytes.push(0);
        self.count += 1;
    }
}

/// Checks a head and finds its variables.
///
/// # Errors
/// When a length points outside of the head, or a code does not exist.
pub fn parse_head(head: &[u8], variables: &mut Vec<Variable>) -> Result<(), Violation> {
    const BROKEN: Violation = Violation("a request's head is broken");
    variables.clear();
    let count = u32::from_le_bytes(*head.first_chunk().ok_or(BROKEN)?);
    let mut at = 4usize;
    for _ in 0..count {
        let fixed: &[u8; 8] = head.get(at..).and_then(<[u8]>::first_chunk).ok_or(BROKEN)?;
        let code = u16::from_le_bytes([fixed[0], fixed[1]]);
        let name_len = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let value_len = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]) as usize;
        let name = at + 8;
        let value = name + name_len + 1;
        let end = value.checked_add(value_len).ok_or(BROKEN)?;
        if head.get(value - 1) != Some(&0) || head.get(end) != Some(&0) {
            return Err(BROKEN);
        }
        if code != CUSTOM && usize::from(code) >= NAMES.len() {
            return Err(BROKEN);
        }
        variables.push(Variable {
            code,
            name: (name as u32, name_len as u32),
            value: (value as u32, value_len as u32),
        });
        at = end + 1;
    }
    Ok(())
}

/// The values of these variables as text, for a person to read: what a worker may have written over is nothing more. `None`
/// for what is not there, and for all of a head that is broken.
pub fn texts<const N: usize>(head: &[u8], codes: [u16; N]) -> [Option<String>; N] {
    let mut variables = Vec::new();
    if parse_head(head, &mut variables).is_err() {
        variables.clear();
    }
    codes.map(|code| {
        let (start, len) = variables.iter().find(|variable| variable.code == code)?.value;
        let bytes = head.get(start as usize..(start + len) as usize)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    })
}

/// The same of a variable that has no code.
pub fn custom_text(head: &[u8], name: &str) -> Option<String> {
    let mut variables = Vec::new();
    parse_head(head, &mut variables).ok()?;
    let bytes = |(start, len): (u32, u32)| head.get(start as usize..(start + len) as usize);
    let variable = variables.iter().find(|one| one.code == CUSTOM && bytes(one.name) == Some(name.as_bytes()))?;
    Some(String::from_utf8_lossy(bytes(variable.value)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_for_a_person_to_read() {
        let mut writer = RequestHeadWriter::default();
        writer.restart();
        writer.known(code::REQUEST_METHOD, b"GET");
        writer.known(code::REQUEST_URI, b"/\xff");
        let head = writer.finish().to_vec();
        let wanted = [code::REQUEST_URI, code::REQUEST_METHOD, code::SCRIPT_FILENAME];
        assert_eq!(texts(&head, wanted), [Some("/\u{fffd}".to_owned()), Some("GET".to_owned()), None]);
        assert_eq!(texts(&head[..head.len() - 1], wanted), [None, None, None], "it is broken");
    }

    #[test]
    fn codes_are_the_places_of_their_names() {
        for (code, name) in [
            (code::REQUEST_METHOD, "REQUEST_METHOD"),
            (code::SCRIPT_FILENAME, "SCRIPT_FILENAME"),
            (code::PATH_TRANSLATED, "PATH_TRANSLATED"),
            (code::SERVER_PORT, "SERVER_PORT"),
            (code::REDIRECT_STATUS, "REDIRECT_STATUS"),
            (code::HTTP_COOKIE, "HTTP_COOKIE"),
            (code::HTTP_HOST, "HTTP_HOST"),
            (code::HTTP_USER_AGENT, "HTTP_USER_AGENT"),
            (code::HOWDAH_WARM_UP, "HOWDAH_WARM_UP"),
        ] {
            assert_eq!(NAMES[usize::from(code)], name);
        }
    }

    #[test]
    fn each_name_has_its_place() {
        for (place, name) in NAMES.iter().enumerate() {
            assert_eq!(place_of(name.as_bytes()), Some(place as u16), "{name}");
        }
        for other in ["", "HTTP_HOSt", "REQUEST_METHO", "HTTP_X", &"X".repeat(MAX_NAME_LENGTH + 1)] {
            assert_eq!(place_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn variables_come_back_as_they_were_written() {
        let mut writer = RequestHeadWriter::default();
        writer.restart();
        writer.known(code::REQUEST_METHOD, b"GET");
        writer.named(b"HTTP_HOST", b"example.org");
        writer.named(b"HTTP_X_UNUSUAL", b"");
        let head = writer.finish().to_vec();
        let mut variables = Vec::new();
        parse_head(&head, &mut variables).unwrap();
        let text = |(start, len): (u32, u32)| &head[start as usize..(start + len) as usize];
        assert_eq!(text(variables[0].value), b"GET");
        assert_eq!(NAMES[usize::from(variables[1].code)], "HTTP_HOST");
        assert_eq!(text(variables[2].name), b"HTTP_X_UNUSUAL");
        assert_eq!(text(variables[2].value), b"");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn no_bytes_make_the_parser_leave_the_head(head in proptest::collection::vec(0u8.., 0..400)) {
            let mut variables = Vec::new();
            if parse_head(&head, &mut variables).is_ok() {
                for variable in variables {
                    proptest::prop_assert!(((variable.value.0 + variable.value.1) as usize) < head.len());
                    proptest::prop_assert!(((variable.name.0 + variable.name.1) as usize) < head.len());
                }
            }
        }
    }
}
