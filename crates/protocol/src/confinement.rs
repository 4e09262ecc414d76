//! What of the machine an application's processes see: what the supervisor asks of a prototype before PHP is loaded.
//!
//! Everything is decided and checked by the supervisor; the prototype only does it, in the order that the kernel needs.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a prototype, and with it its workers, shall not share with the rest of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// A user namespace of its own.
    pub users: Option<UserNamespace>,
    /// Processes of its own; [`FromPrototype::Moved`](crate::prototype_messages::FromPrototype::Moved) tells the new one.
    pub pid: bool,
    /// Mounts of its own.
    pub mount: bool,
    /// A network of its own.
    pub network: bool,
    /// A host name of its own.
    pub uname: bool,
    /// A view of control groups of its own.
    pub cgroup: bool,
    /// What shall be `/`.
    pub rootfs: Option<Rootfs>,
    /// Nothing that it executes gains privileges.
    pub no_new_privs: bool,
    /// Supplementary groups as seen inside: where it looks them up itself it may be too late.
    pub groups: Vec<u32>,
}

/// A user namespace, in the kernel's words: lines of the first number within, the first without, and how many.
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
