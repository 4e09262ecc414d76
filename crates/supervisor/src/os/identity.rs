//! The user as which the router and PHP run. Only root can change users.
//!
//! Errors are sentences without the path of the option: the caller adds it.

use howdah_protocol::identity::Identity;
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The users that root's child processes get by default, in this order.
const UNPRIVILEGED: [&str; 2] = ["www-data", "nobody"]; // words: keep

/// The router's own user, if it exists.
const ROUTER: &str = "howdah";

/// A user and a group. The default is the user that started howdah.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserAccount {
    /// User and group id; `None` changes nothing.
    pub ids: Option<(u32, u32)>,
    /// The user's name, for supplementary groups.
    pub name: Option<String>,
}

// === impl UserAccount ===

impl UserAccount {
    /// The user with this name, in this group or else in the user's own group.
    ///
    /// # Errors
    /// If there is no such user or group, or if only root could change to it.
    pub fn named(user: &str, group: Option<&str>) -> Result<UserAccount, String> {
        let account = of(&find_user(user)?);
        match group {
            Some(group) => account.in_group(group),
            None => account.permitted(),
        }
    }

    /// The same user in another group.
    ///
    /// # Errors
    /// If there is no such group, or if only root could change to it.
    pub fn in_group(self, group: &str) -> Result<UserAccount, String> {
        let gid = group_id(group)?;
        let uid = self.ids.map_or_else(|| Uid::effective().as_raw(), |(uid, _)| uid);
        UserAccount { ids: Some((uid, gid)), name: self.name }.permitted()
    }

    /// The default user for a folder. For root, that is the folder's owner, unless the owner is root too.
    ///
    /// # Errors
    /// As for [`UserAccount::unprivileged`].
    pub fn for_folder(folder: &Path) -> Result<UserAccount, String> {
        let owner = folder.metadata().map(|metadata| (metadata.uid(), metadata.gid()));
        match owner {
            Ok((uid, gid)) if Uid::effective().is_root() && uid != 0 => {
                match User::from_uid(Uid::from_raw(uid)).ok().flatten() {
                    Some(user) => Ok(of(&user)),
                    None => Ok(UserAccount { ids: Some((uid, gid)), name: None }),
                }
            }
            _ => UserAccount::unprivileged(),
        }
    }

    /// For root, a user without privileges; otherwise the current user.
    ///
    /// # Errors
    /// If there is no such user. PHP runs as root only if the operator requests that.
    pub fn unprivileged() -> Result<UserAccount, String> {
        if !Uid::effective().is_root() {
            return Ok(UserAccount::default());
        }
        first_existing(&UNPRIVILEGED)
    }

    /// The router's user, for applications that run as this one by default: for root the user [`ROUTER`], if it exists.
    /// Code of an application could stop a router of its own user.
    pub fn of_router(&self) -> UserAccount {
        let own = User::from_name(ROUTER).ok().flatten().filter(|_| Uid::effective().is_root());
        own.as_ref().map_or_else(|| self.clone(), of)
    }

    /// The ids for a boot message.
    pub(crate) fn identity(&self) -> Identity {
        Identity { ids: self.ids }
    }

    fn permitted(self) -> Result<UserAccount, String> {
        let (uid, gid) = (Uid::effective(), Gid::effective());
        if uid.is_root() {
            return Ok(self);
        }
        if self.ids == Some((uid.as_raw(), gid.as_raw())) {
            return Ok(UserAccount::default());
        }
        Err("only root can run PHP as another user; start howdah as root or leave out user and group".to_owned())
    }
}

/// The number of this user.
///
/// # Errors
/// If there is no such user.
pub fn user_id(name: &str) -> Result<u32, String> {
    find_user(name).map(|user| user.uid.as_raw())
}

/// The number of this group.
///
/// # Errors
/// If there is no such group.
pub fn group_id(name: &str) -> Result<u32, String> {
    let found = Group::from_name(name).ok().flatten().ok_or_else(|| {
        format!("there is no group {name:?} on this machine; create it with `addgroup --system {name}` or name another")
    })?;
    Ok(found.gid.as_raw())
}

fn find_user(name: &str) -> Result<User, String> {
    User::from_name(name).ok().flatten().ok_or_else(|| {
        format!("there is no user {name:?} on this machine; create it with `adduser --system {name}` or name another")
    })
}

fn first_existing(names: &[&str]) -> Result<UserAccount, String> {
    let user = names.iter().find_map(|name| User::from_name(name).ok().flatten());
    user.as_ref().map(of).ok_or_else(|| {
        format!(
            "howdah was started by root, and there is no user {} to run as; choose one with --user",
            names.join(" and no user ")
        )
    })
}

fn of(user: &User) -> UserAccount {
    UserAccount { ids: Some((user.uid.as_raw(), user.gid.as_raw())), name: Some(user.name.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_named_in_the_error() {
        let error = UserAccount::named("no-such-user", None).unwrap_err();
        assert!(error.starts_with("there is no user \"no-such-user\" on this machine; "), "{error}");
    }

    #[test]
    fn root_without_an_unprivileged_user_is_an_error() {
        let error = first_existing(&["no-such-user", "no-such-body"]).unwrap_err();
        assert!(error.contains("no user no-such-user and no user no-such-body"), "{error}");
        assert!(error.contains("--user"), "{error}");
    }

    #[test]
    fn folders_of_root_are_served_by_an_unprivileged_user() {
        if Uid::effective().is_root() {
            assert_ne!(UserAccount::for_folder(Path::new("/")).unwrap().ids, Some((0, 0)));
            assert_eq!(UserAccount::for_folder(Path::new("/")), UserAccount::unprivileged());
        }
    }
}
