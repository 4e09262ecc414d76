//! The addresses of a host name: resolved on another thread, and again from time to time.
//!
//! If a name cannot be resolved any more, its last addresses are used for some minutes, with a line in the log once a
//! minute. A name that was never resolved is an error.

use crate::report::OncePerMinute;
use howdah_blocking_work::{Work, addresses};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The addresses of one name, for one thread.
#[derive(Default)]
pub struct KnownAddresses {
    known: RefCell<Option<Known>>,
    /// Held while the name is resolved: one resolution at a time is enough.
    turn: Mutex<()>,
    /// The resolution, which takes a thread for as long as the system's resolver waits. The request that began it may end
    /// before: then the next one waits for the same.
    running: RefCell<Option<Resolution>>,
}

type Resolution = Work<io::Result<Vec<SocketAddr>>>;

struct Known {
    addresses: Rc<[SocketAddr]>,
    resolved: Instant,
    fresh_until: Instant,
}

/// How long addresses are used without another resolution.
const FRESH: Duration = Duration::from_secs(30);
/// How often the name of a server that is down is resolved at most.
const JUST_NOW: Duration = Duration::from_secs(1);
/// How long addresses are used after a resolution that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long addresses are used at most while the name cannot be resolved.
const KEPT: Duration = Duration::from_secs(600);

static FAILED: LazyLock<OncePerMinute> = LazyLock::new(OncePerMinute::new);

// === impl KnownAddresses ===

impl KnownAddresses {
    /// The addresses of this name, with this port. There is at least one.
    ///
    /// # Errors
    /// When the name cannot be resolved.
    pub async fn of(&self, host: &str, port: u16) -> io::Result<Rc<[SocketAddr]>> {
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        let _turn = self.turn.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(fresh);
        }
        match self.resolve(host, port).await {
            Ok(addresses) if !addresses.is_empty() => {
                let addresses: Rc<[SocketAddr]> = addresses.into();
                let resolved = Instant::now();
                let known = Known { addresses: Rc::clone(&addresses), resolved, fresh_until: resolved + FRESH };
                self.known.replace(Some(known));
                Ok(addresses)
            }
            found => {
                let error = found.err().unwrap_or_else(|| io::Error::other("it has no address"));
                let last = self.last();
                if last.is_some() && FAILED.is_due(host) {
                    tracing::warn!(host, %error, "cannot resolve the name of an upstream; using its last addresses");
                }
                last.ok_or_else(|| io::Error::new(error.kind(), format!("cannot resolve the name {host:?}: {error}")))
            }
        }
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        poll_fn(|context| {
            let mut running = self.running.borrow_mut();
            let resolution = running.get_or_insert_with(|| addresses(host, port));
            let found = ready!(Pin::new(resolution).poll(context));
            *running = None;
            Poll::Ready(found?)
        })
        .await
    }

    /// No address accepted a connection: the next connection resolves the name again, unless that was done just now.
    pub fn expire(&self) {
        if let Some(known) = &mut *self.known.borrow_mut()
            && known.resolved.elapsed() >= JUST_NOW
        {
            known.fresh_until = known.resolved;
        }
    }

    /// Whether there are addresses that may still be used.
    pub fn are_known(&self) -> bool {
        self.known.borrow().as_ref().is_some_and(|known| known.resolved.elapsed() < KEPT)
    }

    fn fresh(&self) -> Option<Rc<[SocketAddr]>> {
        let known = self.known.borrow();
        known.as_ref().filter(|known| Instant::now() < known.fresh_until).map(|known| Rc::clone(&known.addresses))
    }

    /// The last addresses, after a resolution that failed.
    fn last(&self) -> Option<Rc<[SocketAddr]>> {
        let mut known = self.known.borrow_mut();
        let known = known.as_mut().filter(|known| known.resolved.elapsed() < KEPT)?;
        known.fresh_until = Instant::now() + AFTER_FAILURE;
        Some(Rc::clone(&known.addresses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_blocking_work::NAMES;
    use std::net::IpAddr;

    /// A label of 64 letters is longer than DNS allows: no server is asked.
    fn no_name() -> String {
        "x".repeat(64)
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_remembered() {
        let known = KnownAddresses::default();
        let first = known.of("localhost", 81).await.expect("/etc/hosts has it");
        tokio::time::pause();
        assert!(first.iter().all(|address| address.port() == 81 && address.ip().is_loopback()));
        let again = known.of("localhost", 81).await.expect("known");
        assert!(Rc::ptr_eq(&first, &again) && known.are_known());
        known.expire();
        let just_now = known.of("localhost", 81).await.expect("known");
        assert!(Rc::ptr_eq(&first, &just_now), "a name is not resolved for each request to a server that is down");
        tokio::time::advance(JUST_NOW).await;
        known.expire();
        let resolved = known.of("localhost", 81).await.expect("/etc/hosts has it");
        assert!(!Rc::ptr_eq(&first, &resolved));
    }

    #[tokio::test]
    async fn requests_that_end_leave_one_resolution() {
        let known = KnownAddresses::default();
        let address = SocketAddr::new(IpAddr::from([192, 0, 2, 9]), 81);
        let (answer, asked) = std::sync::mpsc::channel();
        known.running.replace(Some(NAMES.spawn(move || asked.recv().map_err(io::Error::other))));
        for _ in 0..3 {
            let name = no_name();
            let request = tokio::time::timeout(Duration::from_millis(1), known.of(&name, 81));
            request.await.expect_err("the resolver does not answer yet");
        }
        answer.send(vec![address]).unwrap();
        assert_eq!(*known.of(&no_name(), 81).await.unwrap(), [address], "another resolution would find nothing");
        assert!(known.running.borrow().is_none());
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_keeps_its_last_addresses() {
        let known = KnownAddresses::default();
        let error = known.of(&no_name(), 81).await.expect_err("no such name");
        assert!(error.to_string().starts_with("cannot resolve the name \"xxx"), "{error}");
        let last: Rc<[SocketAddr]> = Rc::new([SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 81)]);
        let resolved = Instant::now();
        known.known.replace(Some(Known { addresses: Rc::clone(&last), resolved, fresh_until: resolved }));
        assert_eq!(known.of(&no_name(), 81).await.expect("the last ones"), last);
        assert!(known.fresh().is_some(), "the name is not resolved again for each connection");
    }
}
