//! Users of the machine.

use rustix::fs::{Gid, Uid};
use std::io;

/// The numbers of a user and of its group; `None` if there is no such user.
///
/// # Errors
/// The file of the users cannot be read.
pub fn account(user: &str) -> io::Result<Option<(Uid, Gid)>> {
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    Ok(passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let number = |index: usize| fields.get(index)?.parse().ok();
        let is_user = fields.first() == Some(&user);
        is_user.then(|| Some((Uid::from_raw(number(2)?), Gid::from_raw(number(3)?))))?
    }))
}
