//! `share`: the action that answers with a file.

use std::path::{Component, Path, PathBuf};

use crate::action::Action;
use crate::error::{Error, quoted};
use crate::node::{Node, Object};
use crate::template::{self, Template};

const DEFAULT_INDEX: &str = "index.html";

/// Answers with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Where the file may be: absolute paths, tried in this order. There is one at least.
    pub paths: Vec<Template>,
    /// The names of a folder's index file, tried in this order. May be empty. Each is a path below the folder.
    pub index: Vec<String>,
    /// Whether symbolic links are followed: `Some(true)` anywhere, `Some(false)` never, `None` while they stay
    /// inside the share's base, which is [`chroot`](Self::chroot), or else [`Template::constant_prefix`].
    pub follow_symlinks: Option<bool>,
    /// An absolute path that contains every file which the share answers with. It bounds the file that is found;
    /// it is not put before the paths. A path may still turn out to be outside; it is then not found.
    pub chroot: Option<PathBuf>,
    /// What is done if no file is found. Without it, the answer is 404.
    pub fallback: Option<Box<Action>>,
}

// === impl Share ===

impl Share {
    /// From the options of an action that has the option `share`.
    pub(crate) fn read(
        object: &Object<'_>,
        read_action: impl FnOnce(&Node<'_>) -> Result<Action, Error>,
    ) -> Result<Self, Error> {
        let chroot = object.read("chroot", read_chroot)?;
        let share = object.require("share", "the path of the files")?;
        let paths = share.one_or_many(|node| read_path(node, chroot.as_deref()))?;
        if paths.is_empty() {
            return Err(share.error("the array is empty; add a path, as in \"/srv/shop$uri\""));
        }
        let index = object.read("index", |node| node.one_or_many(|node| node.path_below("the folder")))?;
        Ok(Self {
            paths,
            index: index.unwrap_or_else(|| vec![DEFAULT_INDEX.to_owned()]),
            follow_symlinks: object.read("follow_symlinks", Node::boolean)?,
            chroot,
            fallback: object.read("fallback", read_action)?.map(Box::new),
        })
    }
}

fn read_chroot(node: &Node<'_>) -> Result<PathBuf, Error> {
    let path = node.absolute_path()?;
    if path.to_string_lossy().contains('$') {
        return Err(node.error("howdah does not support variables in \"chroot\" yet; write a fixed path"));
    }
    if has_parent(&path) {
        return Err(node.error("write the path without \"..\""));
    }
    Ok(path)
}

fn read_path(node: &Node<'_>, chroot: Option<&Path>) -> Result<Template, Error> {
    let text = node.string()?;
    let problem = |problem: &str| node.error(format_args!("{} {problem}", quoted(&text)));
    if !text.starts_with('/') {
        return Err(problem("is not an absolute path; begin it with \"/\""));
    }
    let template = template::parse(&text).map_err(|what| problem(&what))?;
    if let Some(chroot) = chroot {
        if has_parent(Path::new(&text)) {
            return Err(problem("has a \"..\", which does not go together with \"chroot\"; write the path without it"));
        }
        let constant = Path::new(template.constant_prefix());
        if !constant.starts_with(chroot) && !chroot.starts_with(constant) {
            let chroot = quoted(&chroot.to_string_lossy());
            return Err(problem(&format!("is outside of \"chroot\", which is {chroot}; change one of them")));
        }
    }
    Ok(template)
}

fn has_parent(path: &Path) -> bool {
    path.components().any(|component| component == Component::ParentDir)
}
