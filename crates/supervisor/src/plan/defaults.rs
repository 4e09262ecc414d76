//! The values of options that an application does not set, and what is common to the plans of all applications.

use crate::os::identity::UserAccount;
use std::path::{Path, PathBuf};

/// The values of options that an application does not set.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The account that an application without `user` runs as.
    pub account: UserAccount,
    /// The user and the group of the router, which connects to the sockets of HTTP applications and writes the uploaded
    /// files of RoadRunner applications; `None`: howdah's own.
    pub router: Option<(u32, u32)>,
    /// The state directory: slow logs without a `path` are below it.
    pub state_folder: Option<PathBuf>,
    /// Whether the user wrote the configuration. If not (`howdah serve`), errors do not name its options.
    pub has_configuration: bool,
}

/// Whether a file that cannot be opened is an error, if the application can run without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// It is an error: an operator has just requested this configuration.
    Strict,
    /// It is logged, and the application runs without the file: the configuration was valid when it was stored.
    Lenient,
}

// === impl Defaults ===

impl Defaults {
    /// The group of a Unix socket whose listener names none.
    pub fn socket_group(&self) -> Option<u32> {
        self.account.ids.map(|(_, group)| group)
    }

    /// The account of an application with these options.
    ///
    /// # Errors
    /// With the option and the problem.
    pub fn account(&self, user: Option<&str>, group: Option<&str>) -> Result<UserAccount, (&'static str, String)> {
        match (user, group) {
            (Some(user), group) => UserAccount::named(user, group).map_err(|problem| ("/user", problem)),
            (None, Some(group)) => self.account.clone().in_group(group).map_err(|problem| ("/group", problem)),
            (None, None) => Ok(self.account.clone()),
        }
    }

    /// A problem with an option of this application. `howdah serve` has no configuration whose options the user knows.
    pub fn at(&self, name: &str, option: &str, problem: String) -> String {
        match self.has_configuration {
            true => format!("applications/{name}{option}: {problem}"),
            false => problem,
        }
    }
}

/// The problem of a path that leads to no folder or file.
pub fn missing(path: &Path, kind: &str) -> String {
    if path.exists() {
        return format!("{path:?} is not a {kind}; correct the path");
    }
    format!("{path:?} does not exist; create the {kind} or correct the path")
}
