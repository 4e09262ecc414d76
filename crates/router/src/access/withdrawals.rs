//! Connections whose access was withdrawn: their listener has other authorities for the certificates of clients than when they
//! were accepted, or other web servers may connect to it.
//!
//! Their idle ones are closed, and running requests are finished. Later requests are refused here: those of connections that had no
//! request so far, or whose handshake was running.

use crate::net::peer::Peer;
use crate::response::failure::Failure;
use std::cell::RefCell;
use std::collections::HashMap;

/// How often each listener has withdrawn the access of its clients, for one thread. Listeners that never did are not in it.
#[derive(Debug, Default)]
pub struct Withdrawals {
    times: RefCell<HashMap<u64, u64>>,
}

// === impl Withdrawals ===

impl Withdrawals {
    /// How often this listener has withdrawn it.
    pub fn of(&self, listener: u64) -> u64 {
        self.times.borrow().get(&listener).copied().unwrap_or_default()
    }

    /// Withdraws the access of all clients that are connected to these listeners.
    pub fn withdraw(&self, listeners: impl Iterator<Item = u64>) {
        let mut times = self.times.borrow_mut();
        listeners.for_each(|listener| *times.entry(listener).or_default() += 1);
    }

    /// Forgets the listeners that are not kept. Their numbers never come again.
    pub fn retain(&self, is_kept: impl Fn(u64) -> bool) {
        self.times.borrow_mut().retain(|listener, _| is_kept(*listener));
    }

    /// Refuses a request of a client whose access was withdrawn since it connected.
    ///
    /// # Errors
    /// 421: another connection of the same client may be accepted (RFC 9110, 15.5.20), which many clients try by themselves. 403
    /// for a web server, which would pass the other status on.
    pub fn check(&self, peer: &Peer) -> Result<(), Failure> {
        // A thread that gives a connection to this one may be ahead of it.
        if self.of(peer.listener) <= peer.withdrawals {
            return Ok(());
        }
        let failure = if peer.front.is_some() { Failure::Forbidden } else { Failure::Misdirected };
        let reason = "the access of this client was withdrawn since it connected";
        tracing::info!("{reason}: answered {}", failure.status().as_u16());
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_connections_of_the_listener_are_refused() {
        let withdrawals = Withdrawals::default();
        let peer = |listener| Peer {
            withdrawals: withdrawals.of(listener),
            ..Peer::of_unix_socket("/run/shop.sock", listener)
        };
        let (old, other) = (peer(1), peer(2));
        withdrawals.withdraw([1].into_iter());
        assert_eq!(withdrawals.check(&old), Err(Failure::Misdirected));
        assert_eq!(withdrawals.check(&other), Ok(()));
        assert_eq!(withdrawals.check(&peer(1)), Ok(()), "a new one");
        withdrawals.withdraw([1].into_iter());
        assert_eq!(withdrawals.check(&old), Err(Failure::Misdirected));
    }
}
