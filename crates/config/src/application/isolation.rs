//! `isolation`: which parts of the system the processes of an application share, and which are their own.

use std::path::PathBuf;

use crate::error::{Error, quoted};
use crate::read::node::{Node, Object, Options};

pub(crate) const OPTIONS: Options = Options {
    known: &["namespaces", "uidmap", "gidmap", "rootfs", "automount", "cgroup", "new_privs"],
    unsupported: &[],
};
pub(crate) const NAMESPACE_OPTIONS: Options =
    Options { known: &["cgroup", "credential", "mount", "network", "pid", "uname"], unsupported: &[] };
pub(crate) const MAP_OPTIONS: Options = Options { known: &["container", "host", "size"], unsupported: &[] };
pub(crate) const AUTOMOUNT_OPTIONS: Options =
    Options { known: &["language_deps", "procfs", "tmpfs"], unsupported: &[] };
pub(crate) const CGROUP_OPTIONS: Options = Options { known: &["path"], unsupported: &[] };

/// The isolation of an application's processes from the rest of the system. By default, nothing is isolated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// Their own namespaces.
    pub namespaces: Namespaces,
    /// The users of their user namespace; empty: only the application's user. Requires [`Namespaces::credential`].
    pub uidmap: Vec<IdRange>,
    /// The groups of their user namespace; empty: only the application's group. Requires [`Namespaces::credential`].
    pub gidmap: Vec<IdRange>,
    /// Their root directory, an absolute path other than `/`.
    pub rootfs: Option<PathBuf>,
    /// The file systems mounted below [`rootfs`](Self::rootfs).
    pub automount: Automount,
    /// Their control group; `None`: howdah's own.
    pub cgroup: Option<Cgroup>,
    /// Whether programs that they start may gain privileges, such as from a set-user-ID bit. Default: true.
    pub new_privs: bool,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The group that the path starts from.
    pub base: CgroupBase,
    /// A relative path without `..`; not empty.
    pub path: PathBuf,
}

/// The group from which the path of a control group starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupBase {
    /// The control group of howdah, for a relative path.
    Own,
    /// The root of the hierarchy, for an absolute path.
    Root,
}

/// The namespaces that the processes do not share with the system. Default: no namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Control groups.
    pub cgroup: bool,
    /// Users and groups.
    pub credential: bool,
    /// Mount points.
    pub mount: bool,
    /// Network devices, addresses and ports.
    pub network: bool,
    /// Processes.
    pub pid: bool,
    /// The name of the machine.
    pub uname: bool,
}

/// A range of user or group IDs of the system, and the corresponding IDs in a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first ID in the namespace.
    pub container: u32,
    /// The first ID on the system.
    pub host: u32,
    /// The number of IDs, at least 1. Neither range exceeds the largest ID.
    pub size: u32,
}

/// The file systems that are mounted below a `rootfs`. Default: all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Automount {
    /// PHP's libraries, extensions and settings.
    pub language_deps: bool,
    /// `/proc`.
    pub procfs: bool,
    /// `/tmp`, a file system in memory.
    pub tmpfs: bool,
}

// === impl Isolation ===

impl Default for Isolation {
    fn default() -> Self {
        Self {
            namespaces: Namespaces::default(),
            uidmap: Vec::new(),
            gidmap: Vec::new(),
            rootfs: None,
            automount: Automount::default(),
            cgroup: None,
            new_privs: true,
        }
    }
}

impl Isolation {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&OPTIONS)?;
        let namespaces = object.read("namespaces", Namespaces::read)?.unwrap_or_default();
        if !namespaces.credential
            && let Some(map) = object.get("uidmap").or(object.get("gidmap"))
        {
            let problem = "it needs a user namespace; add \"namespaces\": {\"credential\": true}, or remove it";
            return Err(map.error(problem));
        }
        Ok(Self {
            namespaces,
            uidmap: object.read("uidmap", read_map)?.unwrap_or_default(),
            gidmap: object.read("gidmap", read_map)?.unwrap_or_default(),
            rootfs: object.read("rootfs", read_rootfs)?,
            automount: object.read("automount", Automount::read)?.unwrap_or_default(),
            cgroup: object.read("cgroup", Cgroup::read)?,
            new_privs: object.read("new_privs", Node::boolean)?.unwrap_or(true),
        })
    }
}

fn read_rootfs(node: &Node<'_>) -> Result<PathBuf, Error> {
    let path = node.absolute_path()?;
    if path.parent().is_none() {
        return Err(node.error("\"/\" is the root directory already; write another folder, or remove the option"));
    }
    Ok(path)
}

fn read_map(node: &Node<'_>) -> Result<Vec<IdRange>, Error> {
    node.elements()?.map(|node| IdRange::read(&node)).collect()
}

// === impl Cgroup ===

impl Cgroup {
    pub(crate) fn read(node: &Node<'_>) -> Result<Self, Error> {
        let path = node.object(&CGROUP_OPTIONS)?.require("path", "the path of the control group")?;
        let text = path.nonempty_string()?;
        let names: Vec<&str> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.is_empty() || names.contains(&"..") {
            let problem = format!("{} is not a path of a control group; write one without \"..\"", quoted(&text));
            return Err(path.error(problem));
        }
        let base = if text.starts_with('/') { CgroupBase::Root } else { CgroupBase::Own };
        Ok(Self { base, path: names.iter().collect() })
    }
}

// === impl Namespaces ===

impl Namespaces {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&NAMESPACE_OPTIONS)?;
        let has = |key| flag(&object, key, false);
        Ok(Self {
            cgroup: has("cgroup")?,
            credential: has("credential")?,
            mount: has("mount")?,
            network: has("network")?,
            pid: has("pid")?,
            uname: has("uname")?,
        })
    }
}

fn flag(object: &Object<'_>, key: &str, default: bool) -> Result<bool, Error> {
    Ok(object.read(key, Node::boolean)?.unwrap_or(default))
}

// === impl IdRange ===

impl IdRange {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&MAP_OPTIONS)?;
        let id = |key, meaning, least| object.require(key, meaning)?.integer(least..=u32::MAX, "");
        let container = id("container", "the first ID in the namespace", 0)?;
        let host = id("host", "the first ID on the system", 0)?;
        let size: u32 = id("size", "the number of IDs", 1)?;
        let first: u32 = u32::max(container, host);
        if first.checked_add(size - 1).is_none() {
            let problem = format!("{size} IDs from {first} on exceed {}; lower \"size\"", u32::MAX);
            return Err(node.error(problem));
        }
        Ok(Self { container, host, size })
    }
}

// === impl Automount ===

impl Default for Automount {
    fn default() -> Self {
        Self { language_deps: true, procfs: true, tmpfs: true }
    }
}

impl Automount {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let object = node.object(&AUTOMOUNT_OPTIONS)?;
        Ok(Self {
            language_deps: flag(&object, "language_deps", true)?,
            procfs: flag(&object, "procfs", true)?,
            tmpfs: flag(&object, "tmpfs", true)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read(json: &str) -> Result<Isolation, String> {
        let value = json::parse(json).expect("JSON");
        Isolation::read(&Node::root(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_is_read() {
        let json = r#"{
            "namespaces": {"cgroup": true, "credential": true, "mount": true, "network": true, "pid": true, "uname": true},
            "uidmap": [{"container": 1000, "host": 100000, "size": 1}],
            "gidmap": [{"container": 0, "host": 4294967295, "size": 1}],
            "rootfs": "/srv/root/", "automount": {"language_deps": false, "procfs": false, "tmpfs": false},
            "cgroup": {"path": "shop//web"}, "new_privs": false}"#;
        let expected = Isolation {
            namespaces: Namespaces {
                cgroup: true,
                credential: true,
                mount: true,
                network: true,
                pid: true,
                uname: true,
            },
            uidmap: vec![IdRange { container: 1000, host: 100_000, size: 1 }],
            gidmap: vec![IdRange { container: 0, host: u32::MAX, size: 1 }],
            rootfs: Some("/srv/root".into()),
            automount: Automount { language_deps: false, procfs: false, tmpfs: false },
            cgroup: Some(Cgroup { base: CgroupBase::Own, path: "shop/web".into() }),
            new_privs: false,
        };
        assert_eq!(read(json), Ok(expected));
        assert_eq!(read("{}"), Ok(Isolation::default()));
        let absolute = read(r#"{"cgroup": {"path": "/a"}}"#).expect("isolation").cgroup;
        assert_eq!(absolute, Some(Cgroup { base: CgroupBase::Root, path: "a".into() }));
    }

    #[test]
    fn an_error_names_the_option() {
        let range = |range: &str| format!(r#"{{"namespaces": {{"credential": true}}, "uidmap": [{range}]}}"#);
        let cases = [
            (r#"{"namespaces": {"pid": 1}}"#.to_owned(), "namespaces/pid: expected true or false, found the number 1"),
            (r#"{"namespaces": {"user": true}}"#.to_owned(), "namespaces/user: there is no such option; remove it"),
            (
                r#"{"gidmap": []}"#.to_owned(),
                "gidmap: it needs a user namespace; \
                 add \"namespaces\": {\"credential\": true}, or remove it",
            ),
            (range(r#"{"container": 1, "host": 1}"#), "uidmap/0: \"size\" is missing; add the number of IDs"),
            (
                range(r#"{"container": -1, "host": 1, "size": 1}"#),
                "uidmap/0/container: -1 is out of range; write 0 to 4294967295",
            ),
            (
                range(r#"{"container": 0, "host": 1, "size": 0}"#),
                "uidmap/0/size: 0 is out of range; write 1 to 4294967295",
            ),
            (
                range(r#"{"container": 0, "host": 2, "size": 4294967295}"#),
                "uidmap/0: 4294967295 IDs from 2 on exceed 4294967295; lower \"size\"",
            ),
            (r#"{"rootfs": "srv"}"#.to_owned(), "rootfs: \"srv\" is not an absolute path; begin it with \"/\""),
            (
                r#"{"rootfs": "/"}"#.to_owned(),
                "rootfs: \"/\" is the root directory already; write another folder, or remove the option",
            ),
            (
                r#"{"automount": {"tmpfs": "no"}}"#.to_owned(),
                "automount/tmpfs: expected true or false, found the string \"no\"",
            ),
            (r#"{"cgroup": {}}"#.to_owned(), "cgroup: \"path\" is missing; add the path of the control group"),
            (
                r#"{"cgroup": {"path": "../x"}}"#.to_owned(),
                "cgroup/path: \"../x\" is not a path of a control group; write one without \"..\"",
            ),
            (r#"{"new_privs": 0}"#.to_owned(), "new_privs: expected true or false, found the number 0"),
            (r#"{"chroot": "/x"}"#.to_owned(), "chroot: there is no such option; remove it"),
        ];
        for (json, expected) in cases {
            assert_eq!(read(&json), Err(expected.to_owned()), "{json}");
        }
    }
}
