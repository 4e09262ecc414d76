//! `early_hints`: links that the client can follow before the response comes (RFC 8297).

use crate::error::{Error, quoted};
use crate::read::node::Node;

/// The most links of an action: more than a browser can use while it waits.
const MAX_LINKS: usize = 32;
/// The most bytes of all links of an action: the client gets them with each page.
const MAX_BYTES: usize = 4096;

/// Reads the values of `Link` headers (RFC 8288), one or several.
pub(crate) fn read(node: &Node<'_>) -> Result<Vec<String>, Error> {
    let links = node.one_or_many(read_link)?;
    if links.len() > MAX_LINKS {
        return Err(node.error(format_args!("{} links are too many; write at most {MAX_LINKS}", links.len())));
    }
    let bytes: usize = links.iter().map(String::len).sum();
    if bytes > MAX_BYTES {
        return Err(node.error(format_args!("the links have {bytes} bytes; write at most {MAX_BYTES}")));
    }
    Ok(links)
}

fn read_link(node: &Node<'_>) -> Result<String, Error> {
    let link = node.string()?;
    if !is_link(&link) {
        return Err(node.error(format_args!(
            "{} is not the value of a \"Link\" header; write one such as \"</app.css>; rel=preload; as=style\"",
            quoted(&link)
        )));
    }
    Ok(link)
}

/// A target in angle brackets and a relation, in visible ASCII characters and spaces.
fn is_link(link: &str) -> bool {
    let is_visible = link.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let parts = link.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    is_visible
        && parts.is_some_and(|(target, parameters)| {
            let mut names = parameters.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
            !target.is_empty()
                && !target.contains([' ', '<'])
                && parameters.trim_start().starts_with(';')
                && names.any(|(name, value)| name.trim().eq_ignore_ascii_case("rel") && !value.trim().is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read_text(json: &str) -> Result<Vec<String>, String> {
        let value = json::parse(json).expect("JSON");
        read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn links_are_read() {
        for link in [
            "</app.css>; rel=preload; as=style",
            "<https://cdn.example>;rel=preconnect",
            "</a>; as=font; REL=\\\"preload\\\"",
        ] {
            let text = link.replace('\\', "");
            assert_eq!(read_text(&format!("\"{link}\"")), Ok(vec![text]), "{link}");
        }
        assert_eq!(read_text(r#"["</a>; rel=preload", "</b>; rel=preload"]"#).map(|links| links.len()), Ok(2));
    }

    #[test]
    fn other_values_are_not() {
        for link in [
            "",
            "/app.css",
            "</app.css>",
            "</app.css> rel=preload",
            "<>; rel=preload",
            "</a>; rel=",
            "</a b>; rel=x",
            "</\\n>; rel=x",
            "</ü>; rel=x",
        ] {
            let error = read_text(&format!("\"{link}\"")).expect_err(link);
            assert!(error.contains("is not the value of a \"Link\" header; write one such as"), "{link}: {error}");
        }
        let long = format!("\"</{}>; rel=preload\"", "a".repeat(5000));
        assert!(read_text(&long).expect_err("too long").contains("write at most 4096"));
        let many = format!("[{}]", vec!["\"</a>; rel=x\""; 33].join(", "));
        assert!(read_text(&many).expect_err("too many").contains("33 links are too many; write at most 32"));
    }
}
