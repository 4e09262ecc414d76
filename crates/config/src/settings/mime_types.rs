//! `static/mime_types`: the MIME types of files.

use std::collections::BTreeMap;

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The MIME types of files, by name or extension. A type is visible ASCII.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MimeTypes {
    /// By extension, without the dot and in lower case.
    pub extensions: BTreeMap<String, String>,
    /// By the whole name of a file, in lower case. Names take precedence over extensions.
    pub names: BTreeMap<String, String>,
}

// === impl MimeTypes ===

impl MimeTypes {
    /// Reads types with their extensions and names, and inverts the mapping.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let mut types = Self::default();
        for (mime_type, node) in node.named()? {
            if !is_mime_type(mime_type) {
                return Err(node.error("this is not a MIME type; write one such as \"text/plain\""));
            }
            for file in node.one_or_many(read_file)? {
                let (map, key) = match file {
                    File::Extension(extension) => (&mut types.extensions, extension),
                    File::Name(name) => (&mut types.names, name),
                };
                if let Some(other) = map.insert(key.text, mime_type.to_owned()) {
                    let (written, other) = (quoted(&key.written), quoted(&other));
                    return Err(node.error(format_args!("{written} already has the type {other}; remove one")));
                }
            }
        }
        Ok(types)
    }

    /// The configured type of the file with this name.
    pub fn of(&self, name: &str) -> Option<&str> {
        if self.names.is_empty() && self.extensions.is_empty() {
            return None;
        }
        let by_extension = || in_either_case(&self.extensions, name.rsplit_once('.')?.1);
        in_either_case(&self.names, name).or_else(by_extension).map(String::as_str)
    }
}

/// Looks a key up as it is, because most names are in lower case like the keys, and then in lower case.
fn in_either_case<'m>(map: &'m BTreeMap<String, String>, key: &str) -> Option<&'m String> {
    map.get(key).or_else(|| map.get(&key.to_lowercase()))
}

enum File {
    Extension(Key),
    Name(Key),
}

struct Key {
    text: String,
    written: String,
}

/// Whether the text is a type: names separated by slashes (usually two), and parameters. It must be visible ASCII,
/// because it becomes the value of a header.
fn is_mime_type(name: &str) -> bool {
    let essence = name.split(';').next().unwrap_or_default().trim_end();
    name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && essence.contains('/')
        && essence.split('/').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Reads the name of a file, or an extension, which begins with a dot.
fn read_file(node: &Node<'_>) -> Result<File, Error> {
    let text = node.nonempty_string()?;
    let key = |part: &str| Key { text: part.to_owned(), written: text.clone() };
    if text.contains('/') {
        let advice = "write the name of a file without its folder, or an extension such as \".gz\"";
        return Err(node.error(format_args!("{} has a slash; {advice}", quoted(&text))));
    }
    let Some(extension) = text.strip_prefix('.') else {
        return Ok(File::Name(key(&text.to_lowercase())));
    };
    if extension.is_empty() || extension.contains('.') {
        let advice = "write the part after the last dot, such as \".gz\"";
        return Err(node.error(format_args!("{} is not an extension; {advice}", quoted(&text))));
    }
    Ok(File::Extension(key(&extension.to_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<MimeTypes, String> {
        let value = json::parse(json).expect("JSON");
        MimeTypes::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_the_type_of_its_name_or_its_extension() {
        let json =
            r#"{"text/x-thing; charset=utf-8": [".thing", ".THANG", "README.md"], "a/b": ".md", "c/d": "CHANGES"}"#;
        let types = read(json).expect("types");
        let cases = [
            ("x.thing", Some("text/x-thing; charset=utf-8")),
            ("x.Thang", Some("text/x-thing; charset=utf-8")),
            ("README.md", Some("text/x-thing; charset=utf-8")),
            ("x.md", Some("a/b")),
            ("CHANGES", Some("c/d")),
            ("changes", Some("c/d")),
            ("Readme.MD", Some("text/x-thing; charset=utf-8")),
            ("md", None),
            ("x.css", None),
        ];
        for (name, expected) in cases {
            assert_eq!(types.of(name), expected, "{name}");
        }
        assert_eq!(read(r#"{"text/x-code/x-blah": "x"}"#).expect("types").of("X"), Some("text/x-code/x-blah"));
        assert_eq!(read("{}"), Ok(MimeTypes::default()));
    }

    #[test]
    fn an_invalid_mime_type_is_rejected() {
        let cases = [
            (r#"{"text": ".x"}"#, "text: this is not a MIME type; write one such as \"text/plain\""),
            (r#"{"a//c": ".x"}"#, "a%2F%2Fc: this is not a MIME type; write one such as \"text/plain\""),
            (r#"{"ä/b": ".x"}"#, "ä%2Fb: this is not a MIME type; write one such as \"text/plain\""),
            (
                r#"{"a/b": ["x/README"]}"#,
                "a%2Fb/0: \"x/README\" has a slash; \
                 write the name of a file without its folder, or an extension such as \".gz\"",
            ),
            (r#"{"a/b": "x", "c/d": "X"}"#, "c%2Fd: \"X\" already has the type \"a/b\"; remove one"),
            (
                r#"{"a/b": ".tar.gz"}"#,
                "a%2Fb: \".tar.gz\" is not an extension; write the part after the last dot, such as \".gz\"",
            ),
            (r#"{"a/b": ".x", "c/d": [".y", ".X"]}"#, "c%2Fd: \".X\" already has the type \"a/b\"; remove one"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
