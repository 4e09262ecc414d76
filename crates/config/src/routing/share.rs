//! `share`: the action that answers with a file.

use std::path::Path;

use crate::error::{Error, quoted};
use crate::matching::pattern::{PatternSubject, Patterns};
use crate::read::node::{Node, Object};
use crate::read::scope::Scope;
use crate::template::path::PathTemplate;

const DEFAULT_INDEX: &str = "index.html";

/// Where a file that answers a request may be, and which files are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Absolute paths of the file, tried in this order. There is at least one.
    pub paths: Vec<PathTemplate>,
    /// The index files of a folder: paths below the folder, tried in this order. May be empty.
    pub index: Vec<String>,
    /// The MIME types (in lower case, without parameters; empty if unknown) of files that are sent; `None`: all types.
    /// Index files of folders are always sent.
    pub types: Option<Patterns>,
    /// Whether symbolic links are followed: `Some(true)` everywhere, `Some(false)` never, `None` if they stay inside
    /// the share's base, which is [`chroot`](Self::chroot), or else [`PathTemplate::constant_prefix`].
    pub follow_symlinks: Option<bool>,
    /// Whether the path to a file may cross mount points below the share's base. Default: true.
    pub traverse_mounts: bool,
    /// An absolute path of a folder, outside of which no file is sent. It is not a prefix of the paths. A file that
    /// turns out to be outside is treated as absent.
    pub chroot: Option<PathTemplate>,
}

// === impl Share ===

impl Share {
    /// Reads the options of an action that has the option `share`.
    pub(crate) fn read(object: &Object<'_>, scope: &Scope<'_>) -> Result<Self, Error> {
        let chroot = object.read("chroot", read_chroot)?.flatten();
        let share = object.require("share", "the path of the files")?;
        let paths = share.one_or_many(|node| read_path(node, chroot.as_ref()))?;
        if paths.is_empty() {
            return Err(share.error("the array is empty; add a path, as in \"/srv/shop$uri\""));
        }
        Ok(Self {
            paths,
            index: object.read("index", read_index)?.unwrap_or_else(|| vec![DEFAULT_INDEX.to_owned()]),
            types: object.read("types", |node| Patterns::read(node, PatternSubject::MimeType, scope))?,
            follow_symlinks: object.read("follow_symlinks", Node::boolean)?,
            traverse_mounts: object.read("traverse_mounts", Node::boolean)?.unwrap_or(true),
            chroot,
        })
    }
}

/// Reads the names of index files. As in NGINX Unit, an empty name is no index.
fn read_index(node: &Node<'_>) -> Result<Vec<String>, Error> {
    if node.is_string() && node.string()?.is_empty() {
        return Ok(Vec::new());
    }
    node.one_or_many(|node| node.path_below("the folder"))
}

/// Reads the folder outside of which no file is sent. As in NGINX Unit, an empty path is no such folder.
fn read_chroot(node: &Node<'_>) -> Result<Option<PathTemplate>, Error> {
    if node.is_string() && node.string()?.is_empty() {
        return Ok(None);
    }
    let path = PathTemplate::read(node)?;
    if path.has_parent() {
        return Err(node.error("write the path without \"..\""));
    }
    Ok(Some(path))
}

fn read_path(node: &Node<'_>, chroot: Option<&PathTemplate>) -> Result<PathTemplate, Error> {
    let path = PathTemplate::read(node)?;
    let Some(chroot) = chroot else { return Ok(path) };
    let problem = |problem: &str| node.error(format_args!("{} {problem}", quoted(&path.to_string())));
    if path.has_parent() {
        return Err(problem("has a \"..\", which cannot be combined with \"chroot\"; write the path without it"));
    }
    let Some(folder) = chroot.as_constant() else { return Ok(path) };
    let constant = Path::new(path.constant_prefix());
    // `Path` ignores doubled and trailing slashes.
    if !constant.starts_with(folder) && !Path::new(folder).starts_with(constant) {
        return Err(problem(&format!("is outside of \"chroot\", which is {}; change one of the two", quoted(folder))));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Configuration;
    use crate::routing::action::ActionKind;

    fn parse(json: &str) -> Result<Share, String> {
        let text = format!(r#"{{"routes": {{"r": [{{"action": {json}}}], "s": []}}}}"#);
        let configuration = Configuration::parse(&text).map_err(|error| error.to_string())?;
        match &configuration.routes.find(Some("r")).expect("route").steps()[0].action.kind {
            ActionKind::Share { share, .. } => Ok(share.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn share(paths: &[&str]) -> Share {
        Share {
            paths: paths.iter().map(|path| PathTemplate::parse(path).expect(path)).collect(),
            index: vec!["index.html".to_owned()],
            types: None,
            follow_symlinks: None,
            traverse_mounts: true,
            chroot: None,
        }
    }

    #[test]
    fn every_option_is_read() {
        let chroot = |path: &str| Some(PathTemplate::parse(path).expect(path));
        let cases = [
            (r#"{"share": "/srv$uri"}"#, share(&["/srv$uri"])),
            (
                r#"{"share": "/srv$uri", "follow_symlinks": false, "traverse_mounts": false, "index": []}"#,
                Share {
                    follow_symlinks: Some(false),
                    traverse_mounts: false,
                    index: Vec::new(),
                    ..share(&["/srv$uri"])
                },
            ),
            (
                r#"{"share": "/srv$uri", "chroot": "", "index": ""}"#,
                Share { index: Vec::new(), ..share(&["/srv$uri"]) },
            ),
            (r#"{"share": "$uri"}"#, share(&["$uri"])),
            (
                r#"{"share": ["/srv/shop$uri", "/$host$uri"], "chroot": "/srv/"}"#,
                Share { chroot: chroot("/srv/"), ..share(&["/srv/shop$uri", "/$host$uri"]) },
            ),
            (
                r#"{"share": "/srv/$host/x$uri", "chroot": "/srv/$host/", "index": ["a.html", "b/c"]}"#,
                Share {
                    chroot: chroot("/srv/$host/"),
                    index: vec!["a.html".into(), "b/c".into()],
                    ..share(&["/srv/$host/x$uri"])
                },
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Ok(expected), "{json}");
        }
        let typed = parse(r#"{"share": "/x$uri", "types": ["image/*", "!image/gif"]}"#).expect("share");
        let types = typed.types.expect("types");
        assert!(types.matches(b"image/png") && !types.matches(b"image/gif") && !types.matches(b""));
    }

    #[test]
    fn an_error_names_the_option() {
        let cases = [
            (r#"{"share": []}"#, "share: the array is empty; add a path, as in \"/srv/shop$uri\""),
            (r#"{"share": "srv$uri"}"#, "share: \"srv$uri\" is not an absolute path; begin it with \"/\""),
            (r#"{"share": ["/x", "x$uri"]}"#, "share/1: \"x$uri\" is not an absolute path; begin it with \"/\""),
            (r#"{"share": "/$url"}"#, "share: \"/$url\" has the unknown variable \"url\"; did you mean \"uri\"?"),
            (
                r#"{"share": "/x$uri", "index": "../a"}"#,
                "index: \"../a\" must be a file below the folder, without \"..\"",
            ),
            (
                r#"{"share": "/srv/a$uri", "chroot": "/srv/b"}"#,
                "share: \"/srv/a$uri\" is outside of \"chroot\", which is \"/srv/b\"; change one of the two",
            ),
            (
                r#"{"share": "/srv/b/../a$uri", "chroot": "/srv/b"}"#,
                "share: \"/srv/b/../a$uri\" has a \"..\", which cannot be combined with \"chroot\"; \
                 write the path without it",
            ),
            (r#"{"share": "/srv$uri", "chroot": "/srv/../x"}"#, "chroot: write the path without \"..\""),
            (
                r#"{"share": "/srv$uri", "chroot": "srv"}"#,
                "chroot: \"srv\" is not an absolute path; begin it with \"/\"",
            ),
            (
                r#"{"share": "/x$uri", "types": 1}"#,
                "types: expected a string or an array of strings, found the number 1",
            ),
            (
                r#"{"share": "/x$uri", "types": "~("}"#,
                "types: \"~(\" is not a regular expression (unclosed group); correct it",
            ),
            (
                r#"{"share": "/x$uri", "follow_symlinks": 0}"#,
                "follow_symlinks: expected true or false, found the number 0",
            ),
            (
                r#"{"share": "/x$uri", "traverse_mounts": "no"}"#,
                "traverse_mounts: expected true or false, found the string \"no\"",
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(parse(json), Err(format!("routes/r/0/action/{expected}")), "{json}");
        }
    }
}
