//! A configuration as it was written, without its comments, and its edits by path.
//!
//! A document is any JSON value, with its members in their order. Whether it is a valid configuration is checked by
//! [`Configuration::of`](crate::Configuration::of). An edit does not change the document: it returns another one, which
//! the caller tries and then keeps or drops. Every document can be stored and parsed again: the limits of size and
//! depth apply to edited documents as they do to texts.
//!
//! Errors are answers of the control API: 404 for a path that does not exist, 405 for `post` to a value that is not an
//! array, 400 for a document that grows beyond the limits.

pub mod answer;
pub mod etag;
pub(crate) mod path;
pub(crate) mod secrets;

use crate::document::answer::Refusal;
use crate::document::path::DocumentPath;
use crate::error::{Error, did_you_mean, quoted};
use crate::json::{self, JsonValue, parser, print};

/// The initial configuration of NGINX Unit, in which `PUT /config/listeners/*:80` finds a parent.
const INITIAL: &str = r#"{"listeners": {}, "routes": [], "applications": {}}"#;

/// A configuration as it was written, without its comments, within the limits of size and depth.
#[derive(Clone, Debug)]
pub struct Document {
    root: JsonValue,
}

// === impl Document ===

impl Document {
    /// The document of a server that was never configured: no listeners, no routes, no applications.
    pub fn initial() -> Self {
        Self { root: json::parse(INITIAL).expect("INITIAL is JSON") }
    }

    /// Reads a JSON text, with comments and a byte-order mark as in
    /// [`Configuration::parse`](crate::Configuration::parse).
    ///
    /// # Errors
    ///
    /// A text that is not JSON (with the location), too long or too deep.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::limited(json::parse(text)?)
    }

    /// Reads the body of a request.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and bytes that are not UTF-8, except in comments.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::limited(json::parse_bytes(bytes)?)
    }

    /// Joins several documents into an object, as `GET /` of the control API does with certificates, configuration and
    /// status. The result is only for an answer: it may exceed the limits of size and depth.
    pub fn compose<'a>(members: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let members = members.into_iter().map(|(name, document)| (name.to_owned(), document.root));
        Self { root: JsonValue::Object(Box::new(members.collect())) }
    }

    /// The value at the path, as a document.
    ///
    /// # Errors
    ///
    /// 404 if the path does not exist.
    pub fn get(&self, path: &DocumentPath) -> Result<Self, Refusal> {
        let mut value = &self.root;
        for (depth, segment) in path.segments().iter().enumerate() {
            value = child(value, segment).ok_or_else(|| missing(value, &path.segments()[..depth], segment))?;
        }
        Ok(Self { root: value.clone() })
    }

    /// The document with the value at the path set. A member is replaced, or added at the end; an element is replaced,
    /// or added with the index that follows the last one; the empty path replaces the whole document. Objects above it
    /// that do not exist are created.
    ///
    /// # Errors
    ///
    /// 404 if the parent cannot have such a child; 400 if the document becomes too long or too deep.
    pub fn put(&self, path: &DocumentPath, value: Self) -> Result<Self, Refusal> {
        let Some((last, parents)) = path.segments().split_last() else { return Ok(value) };
        let mut root = self.root.clone();
        let parent = descend_or_create(&mut root, parents)?;
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
    /// 405 if the value is not an array, and always for the whole document, as in NGINX Unit; 404 if the path does not
    /// exist; 400 if the document becomes too long or too deep.
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

    /// The document without the value at the path. The elements after a removed one move up; removing the whole
    /// document leaves `{}`.
    ///
    /// # Errors
    ///
    /// 404 if the path does not exist.
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

    /// JSON text without any space, to be stored.
    pub fn compact(&self) -> String {
        print::compact(&self.root)
    }

    /// JSON text as in NGINX Unit's answer to GET: tabs, CRLF, and CRLF at the end.
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

    /// The document without the certificate authorities, whose accounts have keys that a router needs not know.
    #[must_use]
    pub fn for_router(&self) -> Self {
        let mut root = self.root.clone();
        secrets::remove_authorities(&mut root);
        Self { root }
    }

    /// The document with hidden keys replaced by those of another document, which have the same fingerprints.
    #[must_use]
    pub fn with_keys_of(&self, other: &Self) -> Self {
        let mut root = self.root.clone();
        secrets::restore_keys(&mut root, &other.root);
        Self { root }
    }

    pub(crate) fn root(&self) -> &JsonValue {
        &self.root
    }

    /// Checks the limits. A parsed text is checked again, because numbers may be printed longer than they were written.
    fn limited(root: JsonValue) -> Result<Self, Error> {
        if root.depth() > parser::MAX_DEPTH {
            return Err(Error::configuration(parser::too_deep()));
        }
        parser::check_size(print::compact(&root).len())?;
        Ok(Self { root })
    }
}

/// The value at the path.
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

/// The value at the path. Members of objects that do not exist are created, as objects.
fn descend_or_create<'v>(root: &'v mut JsonValue, segments: &[String]) -> Result<&'v mut JsonValue, Refusal> {
    let mut value = root;
    for (depth, segment) in segments.iter().enumerate() {
        value = match value {
            JsonValue::Object(members) => members.entry(segment.clone()).or_insert_with(empty_object),
            other if child(other, segment).is_none() => return Err(missing(other, &segments[..depth], segment)),
            other => child_mut(other, segment).expect("the child that was there a line ago"),
        };
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

/// Parses an index, of decimal digits only.
fn index_of(segment: &str) -> Option<usize> {
    segment.bytes().all(|byte| byte.is_ascii_digit()).then(|| segment.parse().ok())?
}

/// The error for `parent`, at the path `parents`, that has no such child.
fn missing(parent: &JsonValue, parents: &[String], child: &str) -> Refusal {
    let location = match DocumentPath::from_iter(parents).to_string() {
        path if path.is_empty() => "the configuration".to_owned(),
        path => quoted(&path),
    };
    let similar = match parent {
        JsonValue::Object(members) => did_you_mean(child, members.keys().map(String::as_str)),
        _ => String::new(),
    };
    let child = quoted(child);
    Refusal::no_such_value(match parent {
        JsonValue::Object(_) => format!("{location} has no member {child}{similar}"),
        JsonValue::Array(elements) => match elements.len() {
            0 => format!("{location} is an empty array, which has no element {child}"),
            count => format!("{location} is an array with the elements 0 to {}, not {child}", count - 1),
        },
        other => format!("{location} is {}, which has no member {child}", other.kind()),
    })
}

fn empty_object() -> JsonValue {
    JsonValue::Object(Box::default())
}
