//! The user as which the router and PHP run. Only root can change users.
//!
//! Errors are sentences without the path of the option: the caller adds it.

use howdah_protocol::child::identity::Identity;
use howdah_protocol::trusted_path;
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// The users that root's child processes get by default, in this order.
const UNPRIVILEGED: [&str; 2] = ["www-data", "nobody"]; // words: keep

/// The router's own user, if it exists.
const ROUTER: &str = "howdah";

/// The account of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterAccount {
    /// Its user and group.
    pub account: UserAccount,
    /// A supplementary group besides those of the user.
    pub added_group: Option<u32>,
}

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
    /// The user with this name or number, in this group or else in the user's own group.
    ///
    /// # Errors
    /// If there is no such user or group, or if only root could change to it.
    pub fn named(user: &str, group: Option<&str>) -> Result<UserAccount, String> {
        let named = User::from_name(user).ok().flatten();
        let account = match named.or_else(|| User::from_uid(Uid::from_raw(number(user)?)).ok().flatten()) {
            Some(found) => of(&found),
            None => UserAccount { ids: Some(nameless(user, group)?), name: None },
        };
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

    /// The arguments with which [`Self::named`] finds this account again: the user, and the group of a user without a
    /// name. `None` for the user that started howdah.
    pub fn to_names(&self) -> Option<(String, Option<String>)> {
        let (uid, gid) = self.ids?;
        Some(match &self.name {
            Some(name) => (name.clone(), None),
            None => (uid.to_string(), Some(gid.to_string())),
        })
    }

    /// The default user for a folder. For root, that is the folder's owner, unless the owner is root too.
    ///
    /// # Errors
    /// As for [`UserAccount::unprivileged`], and for root, when a symbolic link of another user than the folder's owner is on
    /// the way: its code could run as that owner after a change of the link.
    pub fn for_folder(folder: &Path) -> Result<UserAccount, String> {
        if !Uid::effective().is_root() {
            return UserAccount::unprivileged();
        }
        let (uid, gid) = trusted_path::owner_of_folder(folder).map_err(|problem| {
            let folder = folder.display();
            format!("cannot choose the user that runs {folder} by its owner: {problem}; name the user with --user")
        })?;
        match User::from_uid(Uid::from_raw(uid)).ok().flatten() {
            _ if uid == 0 => UserAccount::unprivileged(),
            Some(user) => Ok(of(&user)),
            None => Ok(UserAccount { ids: Some((uid, gid)), name: None }),
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

// === impl RouterAccount ===

impl RouterAccount {
    /// This account, with the groups of its user.
    pub fn of(account: UserAccount) -> RouterAccount {
        RouterAccount { account, added_group: None }
    }

    /// The router's account beside applications that run as this one by default: for root the user [`ROUTER`], if it
    /// exists, because code of an application could stop a router of its own user. The group of those applications is
    /// added: static files, Unix sockets and folders may admit only this group.
    pub fn beside(default: &UserAccount) -> RouterAccount {
        let own = User::from_name(ROUTER).ok().flatten().filter(|_| Uid::effective().is_root());
        match own {
            Some(own) => RouterAccount { account: of(&own), added_group: default.ids.map(|(_, group)| group) },
            None => RouterAccount::of(default.clone()),
        }
    }
}

/// "user howdah, groups nogroup and www-data", or "the user that started howdah".
impl fmt::Display for RouterAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((user, group)) = self.account.ids else { return f.write_str("the user that started howdah") };
        match &self.account.name {
            Some(name) => write!(f, "user {name}")?,
            None => write!(f, "user {user}")?,
        }
        let added = self.added_group.filter(|added| *added != group);
        write!(f, ", {} {}", if added.is_some() { "groups" } else { "group" }, group_name(group))?;
        added.map_or(Ok(()), |added| write!(f, " and {}", group_name(added)))
    }
}

fn group_name(id: u32) -> String {
    let named = Group::from_gid(Gid::from_raw(id)).ok().flatten();
    named.map_or_else(|| id.to_string(), |group| group.name)
}

/// The number of the user with this name or number.
///
/// # Errors
/// If there is no such user.
pub fn user_id(user: &str) -> Result<u32, String> {
    let named = User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    named.or_else(|| number(user)).ok_or_else(|| missing("user", "adduser", user))
}

/// The number of the group with this name or number.
///
/// # Errors
/// If there is no such group.
pub fn group_id(group: &str) -> Result<u32, String> {
    let named = Group::from_name(group).ok().flatten().map(|group| group.gid.as_raw());
    named.or_else(|| number(group)).ok_or_else(|| missing("group", "addgroup", group))
}

/// The ids of a user that this machine has no name for.
fn nameless(user: &str, group: Option<&str>) -> Result<(u32, u32), String> {
    let uid = number(user).ok_or_else(|| missing("user", "adduser", user))?;
    if group.is_none() {
        return Err(format!(
            "this machine has no name for the user {user}, so its group is not known; set the group, too"
        ));
    }
    // The caller changes to the group.
    Ok((uid, uid))
}

/// The command is for copying: it appears only with a name that it accepts, and that is one word for a shell.
fn missing(kind: &str, command: &str, name: &str) -> String {
    let advice = match is_portable(name) {
        true => format!("create it with `{command} --system {name}` or name another"),
        false => "name another".to_owned(),
    };
    format!("there is no {kind} {name:?} on this machine; {advice}")
}

/// Whether adduser accepts the name without `--allow-bad-names`.
fn is_portable(name: &str) -> bool {
    const LONGEST: usize = 32;
    name.len() <= LONGEST
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// The id of a user or group that is written as a number. The largest one is no id: it means "no change" to the kernel.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX && text.bytes().all(|byte| byte.is_ascii_digit()))
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
    fn a_command_to_copy_has_an_ordinary_name_only() {
        let error = |name| [UserAccount::named(name, None).unwrap_err(), group_id(name).unwrap_err()];
        let [user, group] = error("no-such-1");
        assert!(user.ends_with("; create it with `adduser --system no-such-1` or name another"), "{user}");
        assert!(group.ends_with("; create it with `addgroup --system no-such-1` or name another"), "{group}");
        let long = "n".repeat(33);
        for name in ["\x1b[2J\u{9b}31m", "a\u{202e}b", "a`id`", "a;id", "a b", "-a", "9a", "A", "a\n", "", &*long] {
            for error in error(name) {
                assert!(error.ends_with(&format!("{name:?} on this machine; name another")), "{error}");
                assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{error:?}");
            }
        }
    }

    #[test]
    fn a_user_without_a_name_is_written_as_numbers() {
        if !Uid::effective().is_root() {
            return;
        }
        let account = UserAccount { ids: Some((54321, 54322)), name: None };
        let (user, group) = account.to_names().unwrap();
        assert_eq!(UserAccount::named(&user, group.as_deref()), Ok(account));
        assert!(UserAccount::named("54321", None).unwrap_err().ends_with("set the group, too"));
        assert!(UserAccount::named("+1", None).unwrap_err().starts_with("there is no user"));
        assert!(UserAccount::named("4294967295", Some("1")).is_err());
        let unprivileged = UserAccount::unprivileged().unwrap();
        let (user, group) = unprivileged.to_names().unwrap();
        assert_eq!(UserAccount::named(&user, group.as_deref()), Ok(unprivileged));
    }

    #[test]
    fn the_routers_account_is_described_for_the_log() {
        let account = UserAccount { ids: Some((54321, 0)), name: Some("howdah".to_owned()) };
        let router = RouterAccount { added_group: Some(54322), account: account.clone() };
        assert_eq!(router.to_string(), "user howdah, groups root and 54322");
        assert_eq!(RouterAccount { added_group: Some(0), ..router }.to_string(), "user howdah, group root");
        let nameless = UserAccount { name: None, ..account };
        assert_eq!(RouterAccount::of(nameless).to_string(), "user 54321, group root");
        assert_eq!(RouterAccount::of(UserAccount::default()).to_string(), "the user that started howdah");
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
