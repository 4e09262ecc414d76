//! The isolation of an application, as planned: its option `isolation`, checked, and translated for the prototype.
//!
//! The kernel may still refuse it. The prototype notices that before it loads PHP, and the API returns that error too.

use crate::os::cgroup::{self, Group};
use crate::os::identity::UserAccount;
use crate::os::machine::Machine;
use crate::plan::option_error::OptionError;
use howdah_config::{Cgroup, CgroupBase, IdRange, Isolation};
use howdah_protocol::child::identity::Identity;
use howdah_protocol::messages::confinement::{Confinement, Rootfs, UserNamespace};
use nix::unistd::{Gid, Uid, getgrouplist};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The isolation of an application.
#[derive(Clone, Debug, Default)]
pub struct Confined {
    /// The steps of its prototype; `None` for no isolation.
    pub confinement: Option<Confinement>,
    /// The user that it becomes, as seen inside, if that differs from its account.
    pub identity: Option<Identity>,
    /// Its control group.
    pub cgroup: Option<Group>,
}

/// The ids of a process: user, group, and all groups.
struct Ids {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

/// Plans the isolation of an application.
///
/// # Errors
/// With the option and what to do.
pub fn of(wanted: &Isolation, account: &UserAccount) -> Result<Confined, OptionError> {
    let cgroup = wanted.cgroup.as_ref().map(group).transpose()?;
    // `automount` only applies to a rootfs.
    let without_process = Isolation { cgroup: None, automount: Default::default(), ..wanted.clone() };
    if without_process == Isolation::default() {
        return Ok(Confined { cgroup, ..Confined::default() });
    }
    let is_root = Uid::effective().is_root();
    let outside = ids(account);
    let namespaces = &wanted.namespaces;
    let (users, inside) = match namespaces.credential {
        true => mapped(wanted, outside, is_root).map(|(users, inside)| (Some(users), inside))?,
        false => (None, outside),
    };
    let confinement = Confinement {
        users,
        pid: namespaces.pid,
        mount: namespaces.mount,
        network: namespaces.network,
        uname: namespaces.uname,
        cgroup: namespaces.cgroup,
        rootfs: wanted.rootfs.as_ref().map(|path| Rootfs {
            path: path.clone(),
            language_deps: wanted.automount.language_deps,
            procfs: wanted.automount.procfs,
            tmpfs: wanted.automount.tmpfs,
        }),
        no_new_privs: !wanted.new_privs,
        groups: inside.groups,
    };
    // Without root, there is no user to change to.
    let identity = account.ids.map(|_| Identity { ids: Some((inside.user, inside.group)) });
    Ok(Confined { confinement: Some(confinement), identity, cgroup })
}

impl Confined {
    /// The processors and the memory that the application may use.
    pub fn machine(&self) -> Machine {
        let ours = cgroup::own_folders();
        match &self.cgroup {
            Some(group) => Machine::within(cgroup::folders_of(group.folder()), &ours),
            None => Machine::within(ours.clone(), &ours),
        }
    }
}

/// The file at this path, as seen by a process with this root directory; `None` if it does not exist. Symbolic links
/// cannot lead out of it.
pub fn inside(rootfs: Option<&Path>, path: &Path) -> Option<PathBuf> {
    let Some(rootfs) = rootfs else { return Some(path.to_owned()) };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, rootfs, flags, Mode::empty()).ok()?;
    let found = rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}

fn error(option: &str, problem: impl Into<String>) -> OptionError {
    OptionError::new(format!("/isolation/{option}"), problem)
}

/// The control group that the configuration names.
fn group(wanted: &Cgroup) -> Result<Group, OptionError> {
    let root = cgroup::root().ok_or_else(|| {
        error(
            "cgroup/path",
            "no hierarchy of control groups, version 2, is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup) \
             or remove the option",
        )
    })?;
    let base = match wanted.base {
        CgroupBase::Root => PathBuf::new(),
        CgroupBase::Own => cgroup::own_group(),
    };
    Ok(Group::new(root.join(base).join(&wanted.path)))
}

fn ids(account: &UserAccount) -> Ids {
    let (user, group) = account.ids.unwrap_or_else(|| (Uid::effective().as_raw(), Gid::effective().as_raw()));
    let name = account.name.as_deref().and_then(|name| CString::new(name).ok());
    let groups = name.and_then(|name| getgrouplist(&name, Gid::from_raw(group)).ok());
    let groups = groups.map_or_else(|| vec![group], |groups| groups.into_iter().map(Gid::as_raw).collect());
    Ids { user, group, groups }
}

/// The maps of a user namespace, and the ids of the application in it.
fn mapped(wanted: &Isolation, outside: Ids, is_root: bool) -> Result<(UserNamespace, Ids), OptionError> {
    let same = |id: u32| IdRange { container: id, host: id, size: 1 };
    let or_same = |map: &[IdRange], id: u32| if map.is_empty() { vec![same(id)] } else { map.to_vec() };
    let users = or_same(&wanted.uidmap, outside.user);
    let groups = or_same(&wanted.gidmap, outside.group);
    if !is_root {
        for (option, map, own) in [("uidmap", &users, outside.user), ("gidmap", &groups, outside.group)] {
            if !matches!(map[..], [IdRange { host, size: 1, .. }] if host == own) {
                let problem = format!(
                    "without root only one number, {own}, can be mapped; write one map of it, or start howdah as root"
                );
                return Err(error(option, problem));
            }
        }
    }
    let find = |option, map: &[IdRange], id: u32, what: &str| {
        let range = map.iter().find(|range| id.checked_sub(range.host).is_some_and(|offset| offset < range.size));
        range.map(|range| range.container + (id - range.host)).ok_or_else(|| {
            let entry = format!("{{\"container\": {id}, \"host\": {id}, \"size\": 1}}");
            error(option, format!("{what} of the application, {id}, is in no map; add {entry}"))
        })
    };
    let inside = Ids {
        user: find("uidmap", &users, outside.user, "the user")?,
        group: find("gidmap", &groups, outside.group, "the group")?,
        groups: outside
            .groups
            .iter()
            .map(|group| find("gidmap", &groups, *group, "a supplementary group"))
            .collect::<Result<_, _>>()?,
    };
    let lines = |map: &[IdRange]| {
        map.iter().map(|IdRange { container, host, size }| format!("{container} {host} {size}\n")).collect()
    };
    Ok((UserNamespace { uid_map: lines(&users), gid_map: lines(&groups) }, inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(container: u32, host: u32, size: u32) -> IdRange {
        IdRange { container, host, size }
    }

    #[test]
    fn ids_are_translated_by_the_maps() {
        type Expected = Result<(&'static str, &'static str, (u32, u32)), &'static str>;
        let cases: [(Vec<IdRange>, Vec<IdRange>, bool, Expected); _] = [
            (vec![], vec![], true, Ok(("33 33 1\n", "34 34 1\n", (33, 34)))),
            (vec![range(0, 33, 1)], vec![], true, Ok(("0 33 1\n", "34 34 1\n", (0, 34)))),
            (
                vec![range(0, 100_000, 1000), range(1000, 30, 10)],
                vec![range(500, 0, 100)],
                true,
                Ok(("0 100000 1000\n1000 30 10\n", "500 0 100\n", (1003, 534))),
            ),
            (vec![range(0, 0, 33)], vec![], true, Err("uidmap: the user of the application, 33, is in no map")),
            (vec![], vec![range(0, 35, 1)], true, Err("gidmap: the group of the application, 34, is in no map")),
            (vec![range(0, 33, 1)], vec![], false, Ok(("0 33 1\n", "34 34 1\n", (0, 34)))),
            (vec![range(0, 33, 2)], vec![], false, Err("uidmap: without root only one number, 33, can be mapped")),
        ];
        for (uidmap, gidmap, is_root, expected) in cases {
            let wanted = Isolation { uidmap, gidmap, ..Isolation::default() };
            let outside = Ids { user: 33, group: 34, groups: vec![34] };
            match (mapped(&wanted, outside, is_root), expected) {
                (Ok((users, inside)), Ok((uid_map, gid_map, ids))) => {
                    assert_eq!((&*users.uid_map, &*users.gid_map), (uid_map, gid_map));
                    assert_eq!((inside.user, inside.group), ids);
                }
                (Err(OptionError { option, problem }), Err(expected)) => {
                    assert!(format!("{option}: {problem}").starts_with(&format!("/isolation/{expected}")), "{problem}");
                }
                (found, expected) => panic!("{:?} is not {expected:?}", found.map(|(users, _)| users)),
            }
        }
    }

    #[test]
    fn supplementary_groups_must_be_mapped() {
        let outside = Ids { user: 33, group: 33, groups: vec![33, 4] };
        let Err(OptionError { option, problem }) = mapped(&Isolation::default(), outside, true) else {
            panic!("the group is mapped")
        };
        assert_eq!(option, "/isolation/gidmap");
        assert!(problem.starts_with("a supplementary group of the application, 4, is in no map"), "{problem}");
    }

    #[test]
    fn links_do_not_lead_out_of_a_rootfs() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("srv/releases/1")).unwrap();
        std::os::unix::fs::symlink("/srv/releases/1", root.join("srv/current")).unwrap();
        std::os::unix::fs::symlink("/../../etc", root.join("srv/out")).unwrap();
        let found = |path: &str| inside(Some(&root), Path::new(path));
        assert_eq!(found("/srv/current"), Some(root.join("srv/releases/1")));
        assert_eq!(found("/srv/out"), None);
        assert_eq!(found("/../srv"), Some(root.join("srv")));
        assert_eq!(inside(None, Path::new("/srv")), Some("/srv".into()));
    }

    #[test]
    fn without_isolation_nothing_is_set_up() {
        let confined = of(&Isolation::default(), &UserAccount::default()).unwrap();
        assert!(confined.confinement.is_none() && confined.cgroup.is_none() && confined.identity.is_none());
    }
}
