//! The order to start a program that is not howdah's own, as another user: a copy of the supervisor's executable gets it,
//! and replaces itself with the program.

use crate::child::identity::Identity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The order. Descriptors: a listening socket for the program, or none.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// The program and its arguments. There is at least one word.
    pub command: Vec<String>,
    /// All its environment variables.
    pub environment: BTreeMap<String, String>,
    /// Where it starts; `None`: where the supervisor is.
    pub working_directory: Option<PathBuf>,
    /// Its user and group.
    pub identity: Identity,
    /// The name of its user, for supplementary groups.
    pub user: Option<String>,
    /// Its soft limit of open descriptors; `None` leaves it as it is.
    pub descriptors: Option<u64>,
}
