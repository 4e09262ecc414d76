//! `socket` of a listener: names become numbers of this machine. Their look-up may take long, as with LDAP: it is done
//! once for each change of the option, on a thread that may wait.

use crate::os::identity;
use crate::os::listen::SocketAccess;
use howdah_config::Listener;

/// The access to the sockets of these listeners. That of an unchanged one is known already.
///
/// # Errors
/// With the path of the option, and what to do.
pub fn of_all(listeners: &[(Listener, Option<SocketAccess>)], group: Option<u32>) -> Result<Vec<SocketAccess>, String> {
    listeners.iter().map(|(listener, known)| known.map_or_else(|| of(listener, group), Ok)).collect()
}

/// Whether [`of_all`] looks up names.
pub fn has_names(listeners: &[(Listener, Option<SocketAccess>)]) -> bool {
    let has_names = |listener: &Listener| listener.socket.user.is_some() || listener.socket.group.is_some();
    listeners.iter().any(|(listener, known)| known.is_none() && has_names(listener))
}

/// The access to a listener's socket. `group` is that of sockets whose listener names none.
///
/// # Errors
/// With the path of the option, and what to do.
fn of(listener: &Listener, group: Option<u32>) -> Result<SocketAccess, String> {
    let wanted = &listener.socket;
    let at = |option: &str, problem: String| {
        let address = listener.address.to_string().replace('/', "%2F");
        format!("listeners/{address}/socket/{option}: {problem}")
    };
    let user = wanted.user.as_deref().map(|name| identity::user_id(name).map_err(|problem| at("user", problem)));
    let named = wanted.group.as_deref().map(|name| identity::group_id(name).map_err(|problem| at("group", problem)));
    Ok(SocketAccess { user: user.transpose()?, group: named.transpose()?.or(group), mode: wanted.mode })
}
