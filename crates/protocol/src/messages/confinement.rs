//! The confinement of an application's processes: the namespaces and the root directory that a prototype enters before it
//! loads PHP.
//!
//! The supervisor decides and checks everything. The prototype only carries it out, in the order that the kernel requires.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The parts of the machine that a prototype and its workers do not share with other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// A user namespace of its own.
    pub users: Option<UserNamespace>,
    /// A pid namespace of its own. `FromPrototype::Moved` reports the new process.
    pub pid: bool,
    /// A mount namespace of its own.
    pub mount: bool,
    /// A network namespace of its own.
    pub network: bool,
    /// A namespace for its own host name.
    pub uname: bool,
    /// A control group namespace of its own.
    pub cgroup: bool,
    /// The folder that becomes `/`.
    pub rootfs: Option<Rootfs>,
    /// Programs that it executes gain no privileges.
    pub no_new_privs: bool,
    /// Supplementary groups as seen inside: the prototype may not be able to look them up any more.
    pub groups: Vec<u32>,
}

/// A user namespace, in the kernel's format: lines of the first id inside, the first id outside, and the count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserNamespace {
    /// For `/proc/PID/uid_map`.
    pub uid_map: String,
    /// For `/proc/PID/gid_map`.
    pub gid_map: String,
}

/// Another root directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rootfs {
    /// Its path as the supervisor sees it.
    pub path: PathBuf,
    /// Whether PHP's own files are mounted below it.
    pub language_deps: bool,
    /// Whether `/proc` is mounted.
    pub procfs: bool,
    /// Whether a file system in memory is mounted as `/tmp`.
    pub tmpfs: bool,
}
