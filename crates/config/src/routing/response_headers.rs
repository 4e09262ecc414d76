//! `response_headers`: changes to the headers of a response.

use crate::error::{Error, quoted};
use crate::read::header_name::is_header_name;
use crate::read::node::Node;
use crate::template::text::Template;

/// Headers that mark the end of a message. howdah sets them itself.
const FRAMING: [&str; 6] = ["connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// How many headers an action may change. The answer has those of the application, too, and all have their place in one map.
const MAX_CHANGES: usize = 256;

/// A change to the headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderChange {
    /// In lower case.
    pub name: String,
    /// The name in the case of the configuration.
    pub written: String,
    /// The value that replaces all headers with this name; `None` (`null`) removes them.
    pub value: Option<Template>,
}

/// Reads the changes, in the order of the text. Each name appears once.
pub(crate) fn read_all(node: &Node<'_>) -> Result<Vec<HeaderChange>, Error> {
    let mut changes: Vec<HeaderChange> = Vec::new();
    for (key, node) in node.named()? {
        if changes.len() == MAX_CHANGES {
            return Err(node.error(format_args!("this is one header too many; write at most {MAX_CHANGES}")));
        }
        if !is_header_name(key) {
            return Err(node.error("this is not the name of a header; write one such as \"Cache-Control\""));
        }
        let name = key.to_ascii_lowercase();
        if FRAMING.contains(&name.as_str()) {
            return Err(
                node.error("howdah sets this header itself, because it marks the end of the response; remove it")
            );
        }
        if changes.iter().any(|change| change.name == name) {
            return Err(node.error("this header appears twice; remove one"));
        }
        let value = if node.is_null() { None } else { Some(read_value(&node)?) };
        changes.push(HeaderChange { name, written: key.to_owned(), value });
    }
    Ok(changes)
}

fn read_value(node: &Node<'_>) -> Result<Template, Error> {
    let text = node.string()?;
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(node.error(format_args!("{} has a control character; remove it", quoted(&text))));
    }
    Template::read(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Vec<HeaderChange>, String> {
        let value = json::parse(json).expect("JSON");
        read_all(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn headers_are_set_or_removed() {
        let change = |name: &str, value: Option<&str>| HeaderChange {
            name: name.to_ascii_lowercase(),
            written: name.into(),
            value: value.map(|value| value.parse().expect(value)),
        };
        let json =
            r#"{"Cache-Control": "max-age=60, public", "X-Host": "${host}:$uri", "x-powered-by": null, "Y": ""}"#;
        let expected = [
            change("Cache-Control", Some("max-age=60, public")),
            change("X-Host", Some("${host}:$uri")),
            change("x-powered-by", None),
            change("Y", Some("")),
        ];
        assert_eq!(read(json).as_deref(), Ok(expected.as_slice()));
        assert_eq!(read("{}"), Ok(Vec::new()));
    }

    #[test]
    fn headers_have_a_limit_of_their_number() {
        let with = |count: usize| {
            let headers: Vec<String> = (0..count).map(|number| format!(r#""X-{number}": "x""#)).collect();
            read(&format!("{{{}}}", headers.join(", "))).map(|changes| changes.len())
        };
        assert_eq!(with(256), Ok(256));
        assert_eq!(with(257), Err("X-256: this is one header too many; write at most 256".to_owned()));
    }

    #[test]
    fn an_invalid_header_is_rejected() {
        let cases = [
            (r#"{"A B": "x"}"#, "A B: this is not the name of a header; write one such as \"Cache-Control\""),
            (
                r#"{"Content-Length": "5"}"#,
                "Content-Length: howdah sets this header itself, because it marks the end of the response; remove it",
            ),
            (r#"{"A": "x", "a": null}"#, "a: this header appears twice; remove one"),
            (r#"{"A": "x\r\nB: y"}"#, r#"A: "x\r\nB: y" has a control character; remove it"#),
            (r#"{"A": "$url"}"#, "A: \"$url\" has the unknown variable \"url\"; did you mean \"uri\"?"),
            (r#"{"A": false}"#, "A: expected a string; write \"false\", with quotes"),
            ("[]", "expected an object, found an array"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(json), Err(expected.to_owned()), "{json}");
        }
    }
}
