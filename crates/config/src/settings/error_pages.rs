//! `error_pages`: files in place of the short pages with which howdah itself answers errors.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::read::node::Node;

const ERRORS: RangeInclusive<u16> = 400..=599;
/// The extensions of a page, and their types.
const TYPES: [(&str, &str); 3] =
    [("html", "text/html; charset=utf-8"), ("json", "application/json"), ("txt", "text/plain; charset=utf-8")];

/// A page for each status that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages {
    pages: BTreeMap<u16, ErrorPage>,
}

/// A file with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The name of its option: a status or a class of them.
    pub option: String,
    /// The file, an absolute path.
    pub file: PathBuf,
    /// `Content-Type`.
    pub content_type: &'static str,
}

// === impl ErrorPages ===

impl ErrorPages {
    /// Reads an object: a status (`"404"`) or a class of them (`"5xx"`), and a file. A status has priority.
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let mut classes = BTreeMap::new();
        let mut pages = BTreeMap::new();
        for (key, node) in node.named()? {
            let page = ErrorPage::read(key, &node)?;
            let status = key.parse().ok().filter(|status| key.len() == 3 && ERRORS.contains(status));
            match (key, status) {
                ("4xx", _) => classes.extend((400..=499).map(|status| (status, page.clone()))),
                ("5xx", _) => classes.extend((500..=599).map(|status| (status, page.clone()))),
                (_, Some(status)) => drop(pages.insert(status, page)),
                _ => return Err(node.error("this is not an error's status; write 400 to 599, \"4xx\" or \"5xx\"")),
            }
        }
        classes.extend(pages);
        Ok(Self { pages: classes })
    }

    /// All pages, by status.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &ErrorPage)> {
        self.pages.iter().map(|(status, page)| (*status, page))
    }
}

// === impl ErrorPage ===

impl ErrorPage {
    fn read(option: &str, node: &Node<'_>) -> Result<Self, Error> {
        let file = node.absolute_path()?;
        let extension = Path::new(&file).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let known = TYPES.iter().find(|(known, _)| *known == extension);
        let (_, content_type) =
            known.ok_or_else(|| node.error("an error page is a file that ends with .html, .json or .txt"))?;
        Ok(Self { option: option.to_owned(), file, content_type })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<ErrorPages, String> {
        let value = json::parse(json).expect("JSON");
        ErrorPages::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_status_has_priority_over_its_class() {
        let pages = read(r#"{"404": "/e/404.html", "4xx": "/e/4.json", "503": "/e/503.txt"}"#).expect("pages");
        let file = |wanted| pages.iter().find(|(status, _)| *status == wanted).map(|(_, page)| page.clone());
        let page = |option: &str, file: &str, content_type| {
            Some(ErrorPage { option: option.into(), file: file.into(), content_type })
        };
        assert_eq!(file(404), page("404", "/e/404.html", "text/html; charset=utf-8"));
        assert_eq!(file(400), page("4xx", "/e/4.json", "application/json"));
        assert_eq!(file(503), page("503", "/e/503.txt", "text/plain; charset=utf-8"));
        assert_eq!(file(500), None);
    }

    #[test]
    fn a_wrong_page_is_named() {
        for (json, expected) in [
            (r#"{"200": "/x.html"}"#, "200: this is not an error's status; write 400 to 599, \"4xx\" or \"5xx\""),
            (r#"{"0404": "/x.html"}"#, "0404: this is not an error's status"),
            (r#"{"404": "x.html"}"#, "404: \"x.html\" is not an absolute path"),
            (r#"{"404": "/x.php"}"#, "404: an error page is a file that ends with .html, .json or .txt"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
