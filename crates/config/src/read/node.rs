//! A value of the configuration together with its path.
//!
//! Each reader takes a node and asks it for the value that it needs (`object`, `string`, `integer` …). The node returns
//! the value, or an error that begins with the node's path in the form of the control API:
//! `listeners/unix:%2Frun%2Fx.sock/pass`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::error::{Error, did_you_mean, quoted};
use crate::json::JsonValue;

/// Up to here a float represents every whole number, so that all readers of JSON agree on it.
pub(crate) const EXACT: u64 = 1 << 53;
/// An error about a value that is not an object names at most this number of the object's options.
const NAMED_OPTIONS: usize = 6;
/// Longer keys are shortened in a path, in characters.
const KEY_CHARS: usize = 100;

/// The options that an object may have.
pub(crate) struct Options {
    pub known: &'static [&'static str],
    /// Options of NGINX Unit that howdah does not have, each with advice.
    pub unsupported: &'static [(&'static str, &'static str)],
}

/// A value with its path.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    value: &'a JsonValue,
    position: NodePosition<'a>,
}

#[derive(Clone, Copy)]
enum NodePosition<'a> {
    Root,
    Member(&'a Node<'a>, &'a str),
    Element(&'a Node<'a>, usize),
}

/// An object that has only known options.
pub(crate) struct Object<'a> {
    node: &'a Node<'a>,
}

// === impl Node ===

impl<'a> Node<'a> {
    pub fn root(value: &'a JsonValue) -> Self {
        Self { value, position: NodePosition::Root }
    }

    /// An error about this value.
    pub fn error(&self, problem: impl fmt::Display) -> Error {
        match self.position {
            NodePosition::Root => Error::configuration(problem.to_string()),
            _ => Error::configuration(format!("{self}: {problem}")),
        }
    }

    /// Whether this is the answer to `GET /` of NGINX Unit's control API, which has the configuration as a member.
    pub fn is_dump_of_units_api(&self) -> bool {
        matches!(self.value, JsonValue::Object(members) if members.contains_key("config"))
    }

    pub fn is_array(&self) -> bool {
        matches!(self.value, JsonValue::Array(_))
    }

    pub fn is_object(&self) -> bool {
        matches!(self.value, JsonValue::Object(_))
    }

    pub fn is_string(&self) -> bool {
        matches!(self.value, JsonValue::String(_))
    }

    /// Whether it is this string.
    pub fn is_string_of(&self, text: &str) -> bool {
        matches!(self.value, JsonValue::String(string) if string == text)
    }

    pub fn is_null(&self) -> bool {
        matches!(self.value, JsonValue::Null)
    }

    /// Reads an object with fixed options.
    pub fn object(&'a self, options: &Options) -> Result<Object<'a>, Error> {
        let JsonValue::Object(members) = self.value else {
            return Err(self.expected_object(options.known));
        };
        for (key, value) in members.iter() {
            let member = Self { value, position: NodePosition::Member(self, key) };
            if let Some((_, advice)) = options.unsupported.iter().find(|(name, _)| name == key) {
                return Err(member.error(format_args!("howdah does not have this option of NGINX Unit; {advice}")));
            }
            if !options.known.contains(&key.as_str()) {
                let similar = did_you_mean(key, options.known.iter().copied());
                let similar = if similar.is_empty() { "; remove it".to_owned() } else { similar };
                return Err(member.error(format_args!("there is no such option{similar}")));
            }
        }
        Ok(Object { node: self })
    }

    /// A member of an object. The other members are not checked.
    pub fn member(&'a self, key: &str) -> Option<Node<'a>> {
        let JsonValue::Object(members) = self.value else {
            return None;
        };
        let (_, key, value) = members.get_full(key)?;
        Some(Self { value, position: NodePosition::Member(self, key) })
    }

    /// The members of an object whose keys are names. Names are not empty and have no control characters.
    pub fn named(&'a self) -> Result<impl Iterator<Item = (&'a str, Node<'a>)>, Error> {
        let members = self.members()?;
        if members.contains_key("") {
            return Err(self.error("a name must not be empty"));
        }
        if let Some(key) = members.keys().find(|key| key.chars().any(char::is_control)) {
            return Err(self.error(format_args!("the name {} has a control character; remove it", quoted(key))));
        }
        Ok(members.iter().map(|(key, value)| (key.as_str(), Self { value, position: NodePosition::Member(self, key) })))
    }

    /// The elements of an array.
    pub fn elements(&'a self) -> Result<impl Iterator<Item = Node<'a>>, Error> {
        let JsonValue::Array(elements) = self.value else {
            return Err(self.expected("an array"));
        };
        Ok(elements
            .iter()
            .enumerate()
            .map(|(index, value)| Self { value, position: NodePosition::Element(self, index) }))
    }

    /// Reads a string or an array of strings. `read` gets the node of each string.
    pub fn one_or_many<T>(&'a self, read: impl Fn(&Node<'a>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        match self.value {
            JsonValue::Array(_) => self.elements()?.map(|element| read(&element)).collect(),
            JsonValue::String(_) => Ok(vec![read(self)?]),
            _ => Err(self.expected("a string or an array of strings")),
        }
    }

    /// Reads a string. NUL is rejected: no path, name or PHP option can contain it.
    pub fn string(&self) -> Result<String, Error> {
        let string = self.any_string()?;
        if string.contains('\0') {
            return Err(self.error("the string has a NUL character; remove it"));
        }
        Ok(string)
    }

    /// Reads a string, which may contain NUL.
    pub fn any_string(&self) -> Result<String, Error> {
        match self.value {
            JsonValue::String(string) => Ok(string.clone()),
            JsonValue::Integer(number) => {
                Err(self.error(format_args!("expected a string; write \"{number}\", with quotes")))
            }
            JsonValue::Float(number) => {
                Err(self.error(format_args!("expected a string; write \"{number}\", with quotes")))
            }
            JsonValue::Bool(boolean) => {
                Err(self.error(format_args!("expected a string; write \"{boolean}\", with quotes")))
            }
            _ => Err(self.expected("a string")),
        }
    }

    /// Reads one of these words and returns its meaning.
    pub fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Error> {
        let quoted_words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let (last, others) = quoted_words.split_last().expect("there are words");
        let all = format!("{} or {last}", others.join(", "));
        let JsonValue::String(text) = self.value else { return Err(self.expected(&all)) };
        let found = words.iter().find(|(word, _)| word == text);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| self.error(format_args!("{} is not possible here; write {all}", quoted(text))))
    }

    pub fn nonempty_string(&self) -> Result<String, Error> {
        let string = self.string()?;
        if string.is_empty() {
            return Err(self.error("the string is empty; write a value or remove the option"));
        }
        Ok(string)
    }

    pub fn boolean(&self) -> Result<bool, Error> {
        match self.value {
            JsonValue::Bool(boolean) => Ok(*boolean),
            _ => Err(self.expected("true or false")),
        }
    }

    /// Reads a whole number. The unit (`seconds`, `bytes`) appears in the message.
    pub fn integer<T: TryFrom<i128>>(
        &self,
        range: RangeInclusive<impl Into<i128> + Copy>,
        unit: &str,
    ) -> Result<T, Error> {
        let range = (*range.start()).into()..=(*range.end()).into();
        let advice = format!("write {} to {} {unit}", range.start(), range.end()).trim_end().to_owned();
        let number = match self.value {
            JsonValue::Integer(number) => *number,
            JsonValue::Float(number) if number.fract() != 0.0 => {
                return Err(self.error(format_args!("{number} is not a whole number; {advice}")));
            }
            // 2.0 and 2e0 are whole numbers.
            JsonValue::Float(number) if number.abs() <= EXACT as f64 => *number as i128,
            JsonValue::Float(number) => {
                return Err(self.error(format_args!("{number} is out of range; {advice}")));
            }
            _ => return Err(self.expected(&format!("a whole number ({advice})"))),
        };
        let inside = range.contains(&number);
        // A range beyond T would be a bug in the caller; it is rejected like a number out of range.
        T::try_from(number)
            .ok()
            .filter(|_| inside)
            .ok_or_else(|| self.error(format_args!("{number} is out of range; {advice}")))
    }

    /// Reads a number, whole or not. The unit appears in the message.
    pub fn number(&self, range: RangeInclusive<f64>, unit: &str) -> Result<f64, Error> {
        let advice = format!("write {} to {} {unit}", range.start(), range.end()).trim_end().to_owned();
        let number = match self.value {
            // Beyond 2^53, where this loses precision, the number is out of range for every caller.
            JsonValue::Integer(number) => *number as f64,
            JsonValue::Float(number) => *number,
            _ => return Err(self.expected(&format!("a number ({advice})"))),
        };
        if !range.contains(&number) {
            return Err(self.error(format_args!("{number} is out of range; {advice}")));
        }
        Ok(number)
    }

    /// Reads an absolute path and removes doubled and trailing slashes.
    pub fn absolute_path(&self) -> Result<PathBuf, Error> {
        let string = self.string()?;
        if !string.starts_with('/') {
            return Err(self.error(format_args!("{} is not an absolute path; begin it with \"/\"", quoted(&string))));
        }
        Ok(Path::new(&string).components().collect())
    }

    /// Reads a path below a folder and normalizes it. A leading slash is allowed, as in NGINX Unit, and removed.
    pub fn path_below(&self, folder: &str) -> Result<String, Error> {
        let string = self.nonempty_string()?;
        let names: Vec<&str> = string.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.is_empty() || names.contains(&"..") {
            return Err(self.error(format_args!("{} must be a file below {folder}, without \"..\"", quoted(&string))));
        }
        Ok(names.join("/"))
    }

    /// Reads an object of strings. Its keys are names, as in [`named`](Self::named).
    pub fn string_map(&'a self) -> Result<BTreeMap<String, String>, Error> {
        self.named()?.map(|(name, node)| Ok((name.to_owned(), node.string()?))).collect()
    }

    fn members(&self) -> Result<&'a IndexMap<String, JsonValue>, Error> {
        match self.value {
            JsonValue::Object(members) => Ok(members),
            _ => Err(self.expected("an object")),
        }
    }

    /// An error with the expected value and the actual one.
    pub fn expected(&self, what: &str) -> Error {
        self.error(self.mismatch(what))
    }

    /// An error about a value that is not an object with these options.
    fn expected_object(&self, options: &[&str]) -> Error {
        let mismatch = self.mismatch("an object");
        if self.is_null() {
            return self.error(mismatch);
        }
        let named: Vec<_> = options.iter().take(NAMED_OPTIONS).map(|option| format!("{option:?}")).collect();
        let are = if options.len() == 1 { "option is" } else { "options are" };
        let others = if options.len() > NAMED_OPTIONS { " and others" } else { "" };
        self.error(format_args!("{mismatch}; its {are} {}{others}", named.join(", ")))
    }

    /// The expected value, and the actual value or its type.
    fn mismatch(&self, expected: &str) -> String {
        let found = match self.value {
            JsonValue::Null => "null; remove the option to get its default".to_owned(),
            JsonValue::Bool(boolean) => boolean.to_string(),
            JsonValue::Integer(number) => format!("the number {number}"),
            JsonValue::Float(number) => format!("the number {number}"),
            JsonValue::String(string) => format!("the string {}", quoted(string)),
            JsonValue::Array(_) => "an array".to_owned(),
            JsonValue::Object(_) => "an object".to_owned(),
        };
        format!("expected {expected}, found {found}")
    }
}

impl fmt::Display for Node<'_> {
    /// Writes the path as in the control API.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = match self.position {
            NodePosition::Root => return Ok(()),
            NodePosition::Member(parent, _) | NodePosition::Element(parent, _) => parent,
        };
        if !matches!(parent.position, NodePosition::Root) {
            write!(f, "{parent}/")?;
        }
        match self.position {
            NodePosition::Root => Ok(()),
            NodePosition::Member(_, key) => write_key(f, key),
            NodePosition::Element(_, index) => write!(f, "{index}"),
        }
    }
}

fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    for c in key.chars().take(KEY_CHARS) {
        match c {
            '/' => f.write_str("%2F")?,
            '%' => f.write_str("%25")?,
            c if c.is_control() => write!(f, "{}", c.escape_default())?,
            c => write!(f, "{c}")?,
        }
    }
    if key.chars().nth(KEY_CHARS).is_some() { f.write_str("...") } else { Ok(()) }
}

// === impl Object ===

impl<'a> Object<'a> {
    /// The option, if it is present.
    pub fn get(&self, key: &str) -> Option<Node<'a>> {
        self.node.member(key)
    }

    /// Reads the option with `read`; `None` if the option is absent.
    pub fn read<T>(&self, key: &str, read: impl FnOnce(&Node<'a>) -> Result<T, Error>) -> Result<Option<T>, Error> {
        self.get(key).map(|node| read(&node)).transpose()
    }

    /// A required option; `meaning` is the advice if it is absent.
    pub fn require(&self, key: &str, meaning: &str) -> Result<Node<'a>, Error> {
        self.get(key).ok_or_else(|| self.node.error(format_args!("{key:?} is missing; add {meaning}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn problem<T: fmt::Debug>(json: &str, read: impl FnOnce(&Node<'_>) -> Result<T, Error>) -> String {
        let value = json::parse(json).expect("JSON");
        read(&Node::root(&value)).expect_err(json).detail
    }

    #[test]
    fn a_path_has_the_form_of_the_control_api() {
        let value = json::parse(r#"{"unix:/a%\n": [0, {"b": 1}]}"#).expect("JSON");
        let root = Node::root(&value);
        let array = root.member("unix:/a%\n").expect("member");
        let element = array.elements().expect("array").nth(1).expect("element");
        let (_, leaf) = element.named().expect("object").next().expect("member");
        assert_eq!(leaf.to_string(), r"unix:%2Fa%25\n/1/b");
        assert_eq!(root.to_string(), "");
        assert_eq!(root.error("x").detail, "x");
    }

    #[test]
    fn a_number_is_whole_and_in_range() {
        let read = |json: &str| problem(json, |node| node.integer::<u32>(1..=9, "seconds"));
        let cases = [
            ("0", "0 is out of range; write 1 to 9 seconds"),
            ("-1", "-1 is out of range; write 1 to 9 seconds"),
            ("10", "10 is out of range; write 1 to 9 seconds"),
            ("1e30", "1000000000000000000000000000000 is out of range; write 1 to 9 seconds"),
            ("1.5", "1.5 is not a whole number; write 1 to 9 seconds"),
            ("\"3\"", "expected a whole number (write 1 to 9 seconds), found the string \"3\""),
            (
                "null",
                "expected a whole number (write 1 to 9 seconds), found null; remove the option to get its default",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), expected);
        }
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_or_an_exponent() {
        for (json, expected) in [("2.0", 2), ("2e0", 2), ("1e1", 10), ("30.0e-1", 3)] {
            let value = json::parse(json).expect("JSON");
            assert_eq!(Node::root(&value).integer::<u32>(1..=10, ""), Ok(expected), "{json}");
        }
    }

    #[test]
    fn an_error_names_the_kind_of_value_that_was_found() {
        assert_eq!(problem("5", |node| node.string()), "expected a string; write \"5\", with quotes");
        assert_eq!(problem("true", |node| node.string()), "expected a string; write \"true\", with quotes");
        assert_eq!(problem("[]", |node| node.string()), "expected a string, found an array");
        assert_eq!(problem(r#""a\u0000""#, |node| node.string()), "the string has a NUL character; remove it");
        assert_eq!(
            problem("\"\"", |node| node.nonempty_string()),
            "the string is empty; write a value or remove the option"
        );
        assert_eq!(problem("\"true\"", |node| node.boolean()), "expected true or false, found the string \"true\"");
    }

    #[test]
    fn an_absolute_path_is_normalized_and_a_relative_one_stays_below_its_folder() {
        let value = json::parse("\"//srv/./shop//\"").expect("JSON");
        assert_eq!(Node::root(&value).absolute_path().expect("path").as_os_str(), "/srv/shop");
        assert_eq!(
            problem("\"srv\"", |node| node.absolute_path()),
            "\"srv\" is not an absolute path; begin it with \"/\""
        );
        for (json, expected) in [("\"a.php\"", "a.php"), ("\"//a/./b..c/\"", "a/b..c")] {
            let value = json::parse(json).expect("JSON");
            assert_eq!(Node::root(&value).path_below("the root"), Ok(expected.to_owned()));
        }
        for json in ["\"/\"", "\".\"", "\"../a\"", "\"a/../../b\"", "\"a/..\""] {
            let problem = problem(json, |node| node.path_below("the root"));
            assert!(problem.ends_with("must be a file below the root, without \"..\""), "{json}: {problem}");
        }
    }
}
