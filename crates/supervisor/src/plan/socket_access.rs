//! `socket` of a listener: names become numbers of this machine.

use crate::os::identity;
use crate::os::listen::SocketAccess;
use howdah_config::Listener;

/// The access to a listener's socket. `group` is that of sockets whose listener names none.
///
/// # Errors
/// With the path of the option, and what to do.
pub fn of(listener: &Listener, group: Option<u32>) -> Result<SocketAccess, String> {
    let wanted = &listener.socket;
    let at = |option: &str, problem: String| {
        let address = listener.address.to_string().replace('/', "%2F");
        format!("listeners/{address}/socket/{option}: {problem}")
    };
    let user = wanted.user.as_deref().map(|name| identity::user_id(name).map_err(|problem| at("user", problem)));
    let named = wanted.group.as_deref().map(|name| identity::group_id(name).map_err(|problem| at("group", problem)));
    Ok(SocketAccess { user: user.transpose()?, group: named.transpose()?.or(group), mode: wanted.mode })
}
