//! A configuration as it was written, without its comments, and its edits by path.
//!
//! A document is any JSON value with its members in their order; whether it is a configuration, only
//! [`Configuration::of`](crate::Configuration::of) says. An edit does not touch the document: it makes another one, to
//! be tried and taken or dropped. What comes of an edit can be stored and read again: the limits of size and depth hold
//! for documents as for texts.
//!
//! What fails and how: a path that leads to nothing is 404, `post` to what is no array 405, a document that grows
//! beyond the limits 400.

pub mod answer;
pub mod etag;
pub(crate) mod path;
pub(crate) mod secrets;

use crate::document::answer::Refusal;
use crate::document::path::DocumentPath;
use crate::error::{Error, Location, did_you_mean, quoted};
use crate::json::{self, JsonValue, parser, print};

/// What NGINX Unit begins with, so that `PUT /config/listeners/*:80` has a parent.
const INITIAL: &str = r#"{"listeners": {}, "routes": [], "applications": {}}"#;

/// A configuration as it was written, without its comments. Size and depth are within the limits of a text.
#[derive(Clone, Debug)]
pub struct Document {
    root: JsonValue,
}

// === impl Document ===

impl Document {
    /// What a server has that was never configured: no listeners, no routes, no applications.
    pub fn initial() -> Self {
        Self { root: json::parse(INITIAL).expect("INITIAL is JSON") }
    }

    /// Reads a JSON text, with comments and a byte-order mark as in [`Configuration::parse`](crate::Configuration::parse).
    ///
    /// # Errors
    ///
    /// What is not JSON, with its location, and what is too long or too deep.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::limited(json::parse(text)?)
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and what is not UTF-8.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Error> {
        parser::check_size(bytes.len())?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let (valid, _) = bytes.split_at(error.valid_up_to());
            let location = Location::of(&String::from_utf8_lossy(valid), valid.len());
            Error::syntax("a byte that is not UTF-8; save the configuration as UTF-8", location)
        })?;
        Self::parse(text)
    }

    /// One document of several, as `GET /` of the control API is one of certificates, configuration and status. It is to
    /// be answered: the limits of size and depth do not hold for it.
    pub fn compose<'a>(members: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let members = members.into_iter().map(|(name, document)| (name.to_owned(), document.root));
        Self { root: JsonValue::Object(Box::new(members.collect())) }
    }

    /// The value at the path, as a document.
    ///
    /// # Errors
    ///
    /// 404 if the path leads to nothing.
    pub fn get(&self, path: &DocumentPath) -> Result<Self, Refusal> {
        let mut value = &self.root;
        for (depth, segment) in path.segments().iter().enumerate() {
            value = child(value, segment).ok_or_else(|| missing(value, &path.segments()[..depth], segment))?;
        }
        Ok(Self { root: value.clone() })
    }

    /// The document with the value at the path set: a member replaced in its place or added at the end; an element
    /// replaced, or added by the index that follows the last one; or all of it.
    ///
    /// # Errors
    ///
    /// 404 if the parent does not exist or can hold no such child; 400 if the document becomes too long or too deep.
    pub fn put(&self, path: &DocumentPath, value: Self) -> Result<Self, Refusal> {
        let Some((last, parents)) = path.segments().split_last() else { return Ok(value) };
        let mut root = self.root.clone();
        let parent = descend(&mut root, parents)?;
        match (&mut *parent, index_of(last)) {
            (JsonValue::Object(members), _) => {
                members.insert(last.clone(), value.root);
            }
            (JsonValue::Array(elements), Some(index)) if index < elements.len() => elements[index] = value.root,
            (JsonValue::Array(elements), Some(index)) if index == elements.len() => elements.push(value.root),
            _ => return Err(missing(parent, parents, last)),
        }
        Ok(Self::limited(root)?)
    }

    /// The document with the value added at the end of the array at the path.
    ///
    /// # Errors
    ///
    /// 405 if there is another kind of value, and always for the whole document, as in NGINX Unit; 404 if there is
    /// none; 400 if the document becomes too long or too deep.
    pub fn post(&self, path: &DocumentPath, value: Self) -> Result<Self, Refusal> {
        if path.is_root() {
            return Err(Refusal::method_not_allowed("POST adds to an array; PUT replaces the whole configuration"));
        }
        let mut root = self.root.clone();
        match descend(&mut root, path.segments())? {
            JsonValue::Array(elements) => elements.push(value.root),
            other => {
                let (path, kind) = (quoted(&path.to_string()), other.kind());
                let problem = format!("POST adds to an array, but {path} is {kind}; PUT replaces it");
                return Err(Refusal::method_not_allowed(problem));
            }
        }
        Ok(Self::limited(root)?)
    }

    /// The document without the value at the path; what follows an element moves up. Without its root it is `{}`.
    ///
    /// # Errors
    ///
    /// 404 if the path leads to nothing.
    pub fn delete(&self, path: &DocumentPath) -> Result<Self, Refusal> {
        let Some((last, parents)) = path.segments().split_last() else { return Ok(Self { root: empty_object() }) };
        let mut root = self.root.clone();
        let parent = descend(&mut root, parents)?;
        let removed = match parent {
            JsonValue::Object(members) => members.shift_remove(last),
            JsonValue::Array(elements) => {
                index_of(last).filter(|index| *index < elements.len()).map(|index| elements.remove(index))
            }
            _ => None,
        };
        match removed {
            Some(_) => Ok(Self { root }),
            None => Err(missing(parent, parents, last)),
        }
    }

    /// JSON text without any space, for storing.
    pub fn compact(&self) -> String {
        print::compact(&self.root)
    }

    /// JSON text as NGINX Unit answers GET: tabs, CRLF, and CRLF at the end.
    pub fn pretty(&self) -> String {
        print::pretty(&self.root) + "\r\n"
    }

    /// The document's strong ETag, quotes included.
    pub fn etag(&self) -> String {
        etag::of(&self.compact())
    }

    /// The document with its secrets hidden, as the control API shows it.
    #[must_use]
    pub fn hide_keys(&self) -> Self {
        let mut root = self.root.clone();
        secrets::hide_keys(&mut root);
        Self { root }
    }

    /// The document with the keys of another one in the place of the texts that stand for them.
    #[must_use]
    pub fn with_keys_of(&self, other: &Self) -> Self {
        let mut root = self.root.clone();
        secrets::restore_keys(&mut root, &other.root);
        Self { root }
    }

    pub(crate) fn root(&self) -> &JsonValue {
        &self.root
    }

    /// Within the limits, or an error. Numbers may be longer as they are printed than as they were written.
    fn limited(root: JsonValue) -> Result<Self, Error> {
        if root.depth() > parser::MAX_DEPTH {
            return Err(Error::configuration(parser::too_deep()));
        }
        parser::check_size(print::compact(&root).len())?;
        Ok(Self { root })
    }
}

/// The value that the names and indexes lead to.
fn descend<'v>(root: &'v mut JsonValue, segments: &[String]) -> Result<&'v mut JsonValue, Refusal> {
    let mut value = root;
    for (depth, segment) in segments.iter().enumerate() {
        if child(value, segment).is_none() {
            return Err(missing(value, &segments[..depth], segment));
        }
        value = child_mut(value, segment).expect("the child that was there a line ago");
    }
    Ok(value)
}

fn child<'v>(parent: &'v JsonValue, segment: &str) -> Option<&'v JsonValue> {
    match parent {
        JsonValue::Object(members) => members.get(segment),
        JsonValue::Array(elements) => elements.get(index_of(segment)?),
        _ => None,
    }
}

fn child_mut<'v>(parent: &'v mut JsonValue, segment: &str) -> Option<&'v mut JsonValue> {
    match parent {
        JsonValue::Object(members) => members.get_mut(segment),
        JsonValue::Array(elements) => elements.get_mut(index_of(segment)?),
        _ => None,
    }
}

/// Decimal digits only.
fn index_of(segment: &str) -> Option<usize> {
    segment.bytes().all(|byte| byte.is_ascii_digit()).then(|| segment.parse().ok())?
}

/// Why `parent`, which is at the path `parents`, has no such child.
fn missing(parent: &JsonValue, parents: &[String], child: &str) -> Refusal {
    let place = match DocumentPath::from_iter(parents).to_string() {
        path if path.is_empty() => "the configuration".to_owned(),
        path => quoted(&path),
    };
    let similar = match parent {
        JsonValue::Object(members) => did_you_mean(child, members.keys().map(String::as_str)),
        _ => String::new(),
    };
    let child = quoted(child);
    Refusal::no_such_value(match parent {
        JsonValue::Object(_) => format!("{place} has no member {child}{similar}"),
        JsonValue::Array(elements) => match elements.len() {
            0 => format!("{place} is an empty array, which has no element {child}"),
            count => format!("{place} is an array with the elements 0 to {}, not {child}", count - 1),
        },
        other => format!("{place} is {}, which has no member {child}", other.kind()),
    })
}

fn empty_object() -> JsonValue {
    JsonValue::Object(Box::default())
}
