//! Paths of files with variables: `/srv/shop$uri`, `/srv/$host$uri`.
//!
//! Clients choose the values, so a value must not lead out of the path. The path begins with a constant folder that the
//! rendered path never leaves: a value that would leave it with `..` gives no path at all. For a path that begins with
//! `$uri`, that folder is `/`.

use std::fmt;

use crate::error::{Error, quoted};
use crate::read::node::Node;
use crate::template::text::{self, Piece};
use crate::template::variable::{TemplateVariable, Variables};

/// An absolute path with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTemplate {
    source: String,
    /// The first piece is a literal that begins with a slash, or `$uri`. No two literals follow each other.
    pieces: Vec<Piece>,
    /// The length of [`PathTemplate::constant_prefix`] within the first piece.
    constant_prefix_bytes: usize,
}

// === impl PathTemplate ===

impl PathTemplate {
    /// Reads a path.
    ///
    /// # Errors
    ///
    /// A path that is not absolute, an unknown variable, a `..` after a variable.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|problem| Error::configuration(format!("{} {problem}", quoted(text))))
    }

    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let text = node.string()?;
        parse(&text).map_err(|problem| node.error(format_args!("{} {problem}", quoted(&text))))
    }

    /// The path for one request; `None` if the request's values would lead out of
    /// [`constant_prefix`](Self::constant_prefix) or insert a NUL, so that there is no file to find.
    ///
    /// - A slash before `$uri` and the slash at the beginning of the URI become one.
    /// - A host cannot lead out of its folder: leading dots become one `_`, and so does each slash and the empty host.
    ///   A path below one host's folder is therefore never taken for the name of another host.
    pub fn render<V: Variables + ?Sized>(&self, variables: &V) -> Option<String> {
        let mut path = String::with_capacity(self.source.len() + 128);
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => path.push_str(literal),
                Piece::Variable(variable) => {
                    let start = path.len();
                    let _ = variables.write(variable, &mut path);
                    match variable {
                        TemplateVariable::Host => tame_host(&mut path, start),
                        TemplateVariable::Uri if path[..start].ends_with('/') && path[start..].starts_with('/') => {
                            path.remove(start);
                        }
                        _ => {}
                    }
                }
            }
        }
        let variable_part = &path[self.constant_prefix_bytes..];
        let leaves = variable_part.contains("..") && variable_part.split('/').any(|segment| segment == "..");
        (!leaves && !variable_part.contains('\0')).then_some(path)
    }

    /// The path, if it has no variables.
    pub fn as_constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Literal(literal)] => Some(literal),
            _ => None,
        }
    }

    /// The longest folder that is the same for every request: it ends with a slash, or `$uri` follows, which begins
    /// with one. `/srv/shop` for `/srv/shop$uri`; `/srv/` for `/srv/$host$uri`, `/srv/a$host/x` and `/srv/x.html`.
    pub fn constant_prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(literal)) => &literal[..self.constant_prefix_bytes],
            _ => "/",
        }
    }

    /// Whether a segment of the text is `..`.
    pub(crate) fn has_parent(&self) -> bool {
        self.pieces.iter().any(has_parent)
    }
}

impl fmt::Display for PathTemplate {
    /// Writes the text of the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn parse(text: &str) -> Result<PathTemplate, String> {
    let mut pieces = text::parse_pieces(text)?;
    pieces.iter_mut().for_each(collapse_slashes);
    // `$uri` begins with a slash.
    if !text.starts_with('/') && pieces.first() != Some(&Piece::Variable(TemplateVariable::Uri)) {
        return Err("is not an absolute path; begin it with \"/\"".into());
    }
    if pieces.iter().skip(1).any(has_parent) {
        return Err("has a \"..\" after a variable; write the path without it".into());
    }
    let constant_prefix_bytes = match pieces.as_slice() {
        [Piece::Literal(literal), Piece::Variable(TemplateVariable::Uri), ..] => literal.len(),
        [Piece::Literal(literal), ..] => literal.rfind('/').map_or(0, |slash| slash + 1),
        _ => 0,
    };
    Ok(PathTemplate { source: text.to_owned(), pieces, constant_prefix_bytes })
}

/// Makes one slash of several: a path is compared with the folder in which it must be, text by text.
fn collapse_slashes(piece: &mut Piece) {
    if let Piece::Literal(literal) = piece {
        while literal.contains("//") {
            *literal = literal.replace("//", "/");
        }
    }
}

fn has_parent(piece: &Piece) -> bool {
    matches!(piece, Piece::Literal(literal) if literal.split('/').any(|segment| segment == ".."))
}

/// Makes the host that was written at `start` the name of one folder.
fn tame_host(path: &mut String, start: usize) {
    let host = &path[start..];
    if !host.is_empty() && !host.starts_with('.') && !host.contains(['/', '\0']) {
        return;
    }
    let tamed: String =
        host.trim_start_matches('.').chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }).collect();
    let prefix = if host.is_empty() || host.starts_with('.') { "_" } else { "" };
    path.truncate(start);
    path.push_str(prefix);
    path.push_str(&tamed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matching::test_request::TestRequest;

    fn render(template: &str, host: &'static str, uri: &'static str) -> Option<String> {
        let request = TestRequest { host, uri, ..TestRequest::default() };
        PathTemplate::parse(template).expect(template).render(&request)
    }

    #[test]
    fn variables_are_replaced() {
        let cases = [
            ("/srv/shop$uri", "/srv/shop/a b"),
            ("/srv/shop/$uri", "/srv/shop/a b"),
            ("/srv/${uri}.html", "/srv/a b.html"),
            ("/srv/$host$uri", "/srv/x.org/a b"),
            ("/srv/${host}_x${uri}", "/srv/x.org_x/a b"),
            ("/srv/$host/$uri", "/srv/x.org/a b"),
            ("/srv/${dollar}uri", "/srv/$uri"),
            ("/srv/x.html", "/srv/x.html"),
            ("/srv/../x.html", "/srv/../x.html"),
            ("//srv///shop//$uri", "/srv/shop/a b"),
            ("$uri", "/a b"),
            ("${uri}.html", "/a b.html"),
        ];
        for (template, expected) in cases {
            assert_eq!(render(template, "x.org", "/a b").as_deref(), Some(expected), "{template}");
            assert_eq!(PathTemplate::parse(template).expect(template).to_string(), template);
        }
    }

    #[test]
    fn a_host_never_leaves_its_folder() {
        let cases = [
            ("", "/srv/_/x"),
            (".", "/srv/_/x"),
            ("..", "/srv/_/x"),
            ("../etc", "/srv/__etc/x"),
            ("a/../b", "/srv/a_.._b/x"),
            ("a..b.", "/srv/a..b./x"),
        ];
        for (host, expected) in cases {
            assert_eq!(render("/srv/$host$uri", host, "/x").as_deref(), Some(expected), "{host}");
        }
        assert_eq!(render("/srv/.$host$uri", ".", "/x").as_deref(), Some("/srv/._/x"));
    }

    #[test]
    fn no_value_leaves_the_constant_folder() {
        let cases = [
            ("/srv/a$arg_x", "x=/../etc/passwd", None),
            ("/srv/.$arg_x", "x=.", None),
            ("/srv/$arg_x./b", "x=.", None),
            ("/srv/$arg_x/b", "x=..", None),
            ("/srv/$arg_x", "x=a%00b", None),
            ("/srv/$arg_x", "x=a/b..c", Some("/srv/a/b..c")),
            ("/srv/$arg_x/b", "y", Some("/srv//b")),
        ];
        for (template, query, expected) in cases {
            let request = TestRequest::default().with_query(query);
            let path = PathTemplate::parse(template).expect(template).render(&request);
            assert_eq!(path.as_deref(), expected, "{template} {query}");
        }
    }

    #[test]
    fn the_constant_prefix_is_a_folder() {
        let cases = [
            ("/srv/shop$uri", "/srv/shop"),
            ("/srv/shop/$uri", "/srv/shop/"),
            ("/srv/shop/${uri}.html", "/srv/shop/"),
            ("/srv/$host$uri", "/srv/"),
            ("/srv/a$host$uri", "/srv/"),
            ("/srv/${dollar}x$uri", "/srv/$x"),
            ("/srv/x.html", "/srv/"),
            ("/srv/x/", "/srv/x/"),
            ("/$uri", "/"),
            ("$uri", "/"),
            ("$uri.html", "/"),
            ("//srv//shop//$uri", "/srv/shop/"),
        ];
        for (template, expected) in cases {
            assert_eq!(PathTemplate::parse(template).expect(template).constant_prefix(), expected, "{template}");
        }
    }

    #[test]
    fn an_invalid_path_is_rejected() {
        let cases = [
            ("srv$uri", "\"srv$uri\" is not an absolute path; begin it with \"/\""),
            ("$host$uri", "\"$host$uri\" is not an absolute path; begin it with \"/\""),
            ("/$host/../x", "\"/$host/../x\" has a \"..\" after a variable; write the path without it"),
            ("/$url", "has the unknown variable \"url\"; did you mean \"uri\"?"),
            ("`/www${vars.uri}`", "is a JavaScript template"),
        ];
        for (template, expected) in cases {
            let error = PathTemplate::parse(template).expect_err(template).to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
    }
}
