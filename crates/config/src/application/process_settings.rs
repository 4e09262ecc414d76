//! The options of processes that applications of all types have: their environment, their user, and where their output goes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, quoted};
use crate::read::node::{Node, Object};

/// How the processes of an application run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Environment variables. A name is not empty and has no `=`.
    pub environment: BTreeMap<String, String>,
    /// Whether they also get howdah's own environment, as the program that started howdah set it.
    pub inherit_environment: bool,
    /// The name of their user; `None`: that of `--user`, or of the settings.
    pub user: Option<String>,
    /// The name of their group; `None`: the user's primary group.
    pub group: Option<String>,
    /// The file to which their standard output is appended, an absolute path; `None`: howdah's log.
    pub stdout: Option<PathBuf>,
    /// The file to which their standard error is appended, an absolute path; `None`: howdah's log.
    pub stderr: Option<PathBuf>,
}

// === impl ProcessSettings ===

impl ProcessSettings {
    /// Reads the options of an application.
    pub(crate) fn read(application: &Object<'_>) -> Result<Self, Error> {
        Ok(Self {
            environment: application.read("environment", read_environment)?.unwrap_or_default(),
            inherit_environment: application.read("inherit_environment", Node::boolean)?.unwrap_or(false),
            user: application.read("user", Node::nonempty_string)?,
            group: application.read("group", Node::nonempty_string)?,
            stdout: application.read("stdout", Node::absolute_path)?,
            stderr: application.read("stderr", Node::absolute_path)?,
        })
    }
}

fn read_environment(node: &Node<'_>) -> Result<BTreeMap<String, String>, Error> {
    let variables = node.string_map()?;
    if let Some(name) = variables.keys().find(|name| name.contains('=')) {
        return Err(node.error(format_args!("the name {} has a \"=\"; write {{\"NAME\": \"VALUE\"}}", quoted(name))));
    }
    Ok(variables)
}
