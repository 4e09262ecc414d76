//! The user that a child becomes before it does anything else.

use nix::unistd::{Gid, Uid, getgroups, initgroups, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};
use std::env::{current_dir, set_current_dir};
use std::ffi::CString;
use std::io;

/// The user and group of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User and group id; `None` keeps those of the supervisor.
    pub ids: Option<(u32, u32)>,
}

// === impl Identity ===

impl Identity {
    /// Becomes this user, permanently: first the groups, while that is still allowed. The groups are those of the user
    /// with this name, and the added one. Call it while the process has one thread. It clears the death signal: see
    /// [`parent_death`](crate::child::parent_death). The process leaves a current folder that this user cannot enter.
    ///
    /// # Errors
    /// When the process lacks the privilege.
    pub fn assume(self, user: Option<&str>, added_group: Option<u32>) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let gid = Gid::from_raw(gid);
        match user.and_then(|name| CString::new(name).ok()) {
            Some(name) => initgroups(&name, gid)?,
            None => setgroups(&[gid])?,
        }
        if let Some(added) = added_group.map(Gid::from_raw) {
            let mut groups = getgroups()?;
            groups.push(added);
            setgroups(&groups)?;
        }
        setgid(gid)?;
        setuid(Uid::from_raw(uid))?;
        leave_private_folder()
    }

    /// Like [`Identity::assume`], with these supplementary groups, for a process that sees another /etc/group or none.
    ///
    /// # Errors
    /// When the process lacks the privilege.
    pub fn assume_with(self, groups: &[u32]) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(gid))?;
        setuid(Uid::from_raw(uid))?;
        leave_private_folder()
    }
}

/// Goes to `/`, unless this user can enter the current folder by its path: a process needs no access to the folders above it.
fn leave_private_folder() -> io::Result<()> {
    let can_enter = current_dir().and_then(set_current_dir).is_ok();
    if can_enter { Ok(()) } else { set_current_dir("/") }
}
