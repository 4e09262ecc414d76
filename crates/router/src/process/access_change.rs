//! Which connections a change ends, because it withdraws the access with which they were admitted: other authorities for the
//! certificates of clients, other web servers of a FastCGI listener, or another protocol.
//!
//! Running requests are finished, and later ones are refused ([`Withdrawals`](crate::access::Withdrawals)), also of clients without a
//! certificate, of which one is asked now.

use crate::net::tls::Digest;
use howdah_config::Listener;
use std::collections::HashMap;

/// Digests of the authorities that vouch for the clients of listeners, by listener.
pub type Authorities = HashMap<u64, Digest>;

/// Whether other authorities, or none, vouch for the clients of this listener than before.
pub fn has_other_authorities(listener: u64, old: &Authorities, new: &Authorities) -> bool {
    old.get(&listener).is_some_and(|old| new.get(&listener) != Some(old))
}

/// Whether authorities vouch for the clients of this listener that did not before.
pub fn has_new_authorities(listener: u64, old: &Authorities, new: &Authorities) -> bool {
    new.get(&listener).is_some_and(|new| old.get(&listener) != Some(new))
}

/// Whether a listener of web servers allows others to connect than before.
pub fn has_new_web_servers(old: Option<&Listener>, new: Option<&Listener>) -> bool {
    let servers = old.zip(new).and_then(|(old, new)| old.fastcgi.as_ref().zip(new.fastcgi.as_ref()));
    servers.is_some_and(|(old, new)| old != new)
}

/// Whether a listener has another protocol now, or other web servers may connect.
pub fn has_other_protocol(old: Option<&Listener>, new: Option<&Listener>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old.fastcgi != new.fastcgi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_authorities_end_connections() {
        let (old, new) = (
            Authorities::from([(1, [1; 32]), (2, [2; 32]), (3, [3; 32])]),
            Authorities::from([(1, [1; 32]), (2, [9; 32]), (4, [4; 32])]),
        );
        let ended: Vec<_> = (0..6).filter(|listener| has_other_authorities(*listener, &old, &new)).collect();
        assert_eq!(ended, [2, 3]);
        let begun: Vec<_> = (0..6).filter(|listener| has_new_authorities(*listener, &old, &new)).collect();
        assert_eq!(begun, [2, 4]);
    }
}
