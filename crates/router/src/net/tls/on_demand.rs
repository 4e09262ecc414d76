//! Certificates of names that are not in the configuration (`on_demand`): clients ask for them, the supervisor decides.
//!
//! A handshake for an unknown name is reported to the supervisor, and waits for some seconds: the first visitor of a site
//! gets a page, not an error. Names are those of strangers: reports and waiting handshakes have a limit, beyond which a
//! handshake fails at once.

use crate::net::tls::certificates::certified_key;
use crate::report::SupervisorLink;
use howdah_protocol::messages::router::FromRouter;
use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Certificates with their keys, as PEM, by name; `None` for a name that has none any more.
pub type OnDemandPems = BTreeMap<String, Option<String>>;

/// The certificates, for all listeners and threads.
#[derive(Debug, Default)]
pub struct OnDemandCertificates {
    /// Whether a listener has names on demand.
    is_active: AtomicBool,
    by_name: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    reported: Mutex<ReportedNames>,
    /// The number of handshakes that wait.
    waiting: AtomicUsize,
    /// `None` in a unit test.
    supervisor: Option<SupervisorLink>,
}

/// The names of the last reports, when they were reported, and whether they were refused since.
#[derive(Debug, Default)]
struct ReportedNames(HashMap<String, (Instant, bool)>);

/// A handshake that waits.
struct Waiting<'c>(&'c AtomicUsize);

/// How long a name is not reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(10);
/// The most names in that time.
const MAX_REPORTS: usize = 200;
/// Most authorities issue a certificate within this time.
const PATIENCE: Duration = Duration::from_secs(15);
const MAX_WAITING: usize = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

// === impl OnDemandCertificates ===

impl OnDemandCertificates {
    /// Without certificates.
    pub fn new(supervisor: SupervisorLink) -> OnDemandCertificates {
        OnDemandCertificates { supervisor: Some(supervisor), ..OnDemandCertificates::default() }
    }

    /// Sets whether a listener has names on demand.
    pub fn set_active(&self, is_active: bool) {
        self.is_active.store(is_active, Ordering::Release);
    }

    /// Whether a listener has names on demand.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Uses these certificates: instead of the former ones, or besides them; a name without one has none any more. Unusable
    /// ones are logged.
    pub fn update(&self, pems: &OnDemandPems, all: bool) {
        let provider = ring::default_provider();
        let usable = |name: &str, pem: &Option<String>| match certified_key(pem.as_deref()?, &provider) {
            Ok(key) => Some(Arc::new(key)),
            Err(problem) => {
                tracing::error!("the certificate of {name} cannot be used: {problem}");
                None
            }
        };
        let keys: Vec<_> = pems.iter().map(|(name, pem)| (name, pem, usable(name, pem))).collect();
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        if all {
            by_name.clear();
        }
        for (name, pem, key) in keys {
            match (key, pem) {
                (Some(key), _) => drop(by_name.insert(name.clone(), key)),
                (None, None) => drop(by_name.remove(name)),
                // The former one may still be valid.
                (None, Some(_)) => {}
            }
        }
    }

    /// The certificate of this name, which is in lower case. A name without one is reported.
    pub fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let found = self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if found.is_none()
            && self.reported().is_due(name, Instant::now())
            && let Some(supervisor) = &self.supervisor
        {
            supervisor.send(&FromRouter::UnknownName { name: name.to_owned() });
        }
        found
    }

    /// There is no certificate for a name for now.
    pub fn refuse(&self, name: &str) {
        self.reported().refuse(name);
    }

    /// Waits until a handshake has a certificate, but not for long, not with many others, and not for a name that is refused.
    pub async fn wait_until(&self, name: &str, has_certificate: impl Fn() -> bool) {
        if has_certificate() {
            return;
        }
        let Some(_waiting) = Waiting::begin(&self.waiting) else { return };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.reported().is_hopeful(&name) && !has_certificate() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn reported(&self) -> MutexGuard<'_, ReportedNames> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ReportedNames ===

impl ReportedNames {
    /// Whether a name is to be reported.
    fn is_due(&mut self, name: &str, now: Instant) -> bool {
        let is_recent = |(at, _): &(Instant, bool)| now.saturating_duration_since(*at) < REPORT_AGAIN;
        if self.0.get(name).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= MAX_REPORTS {
            self.0.retain(|_, report| is_recent(report));
        }
        let is_due = self.0.len() < MAX_REPORTS;
        if is_due {
            self.0.insert(name.to_owned(), (now, false));
        }
        is_due
    }

    /// Whether the supervisor may still get a certificate for a name.
    fn is_hopeful(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, is_refused)| !is_refused)
    }

    fn refuse(&mut self, name: &str) {
        if let Some((_, is_refused)) = self.0.get_mut(name) {
            *is_refused = true;
        }
    }
}

// === impl Waiting ===

impl Waiting<'_> {
    /// One more, unless there are enough.
    fn begin(waiting: &AtomicUsize) -> Option<Waiting<'_>> {
        let more = |waiting| (waiting < MAX_WAITING).then_some(waiting + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Waiting(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cannot_cause_many_reports() {
        let (mut names, now) = (ReportedNames::default(), Instant::now());
        assert!(names.is_due("shop.example", now) && !names.is_due("shop.example", now));
        let due = (0..10_000).filter(|number| names.is_due(&format!("n{number}.example"), now)).count();
        assert_eq!(due, MAX_REPORTS - 1);
        assert!(!names.is_hopeful("n9999.example"), "a name that was not reported");
        assert!(names.is_due("shop.example", now + REPORT_AGAIN) && names.0.len() <= MAX_REPORTS);
    }

    #[test]
    fn no_handshake_waits_for_a_refused_name() {
        let (mut names, now) = (ReportedNames::default(), Instant::now());
        assert!(names.is_due("shop.example", now) && names.is_hopeful("shop.example"));
        names.refuse("shop.example");
        names.refuse("other.example");
        assert!(!names.is_hopeful("shop.example") && !names.is_hopeful("other.example"));
        assert!(names.is_due("shop.example", now + REPORT_AGAIN) && names.is_hopeful("shop.example"));
    }

    #[test]
    fn handshakes_that_wait_have_a_limit() {
        let number = AtomicUsize::new(0);
        let waiting: Vec<_> = (0..2 * MAX_WAITING).filter_map(|_| Waiting::begin(&number)).collect();
        assert_eq!(waiting.len(), MAX_WAITING);
        drop(waiting);
        assert!(Waiting::begin(&number).is_some());
    }

    #[test]
    fn a_change_leaves_the_other_certificates() {
        let pem = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            Some(made.cert.pem() + &made.signing_key.serialize_pem())
        };
        let pems = |entries: &[(&str, Option<String>)]| -> OnDemandPems {
            entries.iter().map(|(name, pem)| ((*name).to_owned(), pem.clone())).collect()
        };
        let certificates = OnDemandCertificates::default();
        let names = || ["a", "b", "c", "d"].map(|name| certificates.certificate(name).is_some());
        certificates.update(&pems(&[("a", pem("a")), ("b", pem("b")), ("d", None)]), true);
        assert_eq!(names(), [true, true, false, false]);
        certificates.update(&pems(&[("a", None), ("b", Some("no PEM".to_owned())), ("c", pem("c"))]), false);
        assert_eq!(names(), [false, true, true, false]);
        certificates.update(&pems(&[("a", pem("a"))]), true);
        assert_eq!(names(), [true, false, false, false]);
    }
}
