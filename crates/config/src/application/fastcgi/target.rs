//! The scripts of a FastCGI application: as those of a PHP application, and where the server has their files.

use crate::application::php::target::{self as php_target, ScriptTarget};
use crate::error::Error;
use crate::read::node::{Node, Object, Options};
use std::path::PathBuf;

pub(crate) const OPTIONS: Options =
    Options { known: &["root", "remote_root", "script", "index", "front_controller"], unsupported: &[] };

/// The scripts that run for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiTarget {
    /// The scripts, with the paths that howdah sees.
    pub scripts: ScriptTarget,
    /// The folder of the scripts as the server sees it, an absolute path; `None`: the same.
    pub remote_root: Option<PathBuf>,
}

/// Reads the targets of an application: its only one, or those with names.
pub(crate) fn read_all(application: &Object<'_>) -> Result<Vec<(Option<String>, FastCgiTarget)>, Error> {
    let Some(targets) = application.get("targets") else {
        return Ok(vec![(None, FastCgiTarget::read(application)?)]);
    };
    php_target::reject_beside_targets(application, &OPTIONS)?;
    let read =
        |(name, node): (&str, Node<'_>)| Ok((Some(name.to_owned()), FastCgiTarget::read(&node.object(&OPTIONS)?)?));
    let named: Vec<_> = targets.named()?.map(read).collect::<Result<_, _>>()?;
    if named.is_empty() {
        return Err(php_target::no_target(&targets));
    }
    Ok(named)
}

// === impl FastCgiTarget ===

impl FastCgiTarget {
    fn read(object: &Object<'_>) -> Result<Self, Error> {
        Ok(Self { scripts: ScriptTarget::read(object)?, remote_root: object.read("remote_root", Node::absolute_path)? })
    }
}
