//! The user that a child becomes before it does anything else.

use nix::unistd::{Gid, Uid, initgroups, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io;

/// Who a child becomes, before it does anything else. Nothing changes for `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User and group id.
    pub ids: Option<(u32, u32)>,
}

// === impl Identity ===

impl Identity {
    /// Becomes this user, for good: groups first, while that is still allowed. Only while the process has one thread. Clears
    /// the death signal: see [`die_with_supervisor`].
    ///
    /// # Errors
    /// When the process may not.
    pub fn assume(self, user: Option<&str>) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let gid = Gid::from_raw(gid);
        match user.and_then(|name| CString::new(name).ok()) {
            Some(name) => initgroups(&name, gid)?,
            None => setgroups(&[gid])?,
        }
        setgid(gid)?;
        setuid(Uid::from_raw(uid))?;
        Ok(())
    }

    /// The same with these supplementary groups, for a process that sees no /etc/group, or another one.
    ///
    /// # Errors
    /// When the process may not.
    pub fn assume_with(self, groups: &[u32]) -> io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        setgid(Gid::from_raw(gid))?;
        setuid(Uid::from_raw(uid))?;
        Ok(())
    }
}
