//! The domains in the status of howdah.

use super::domain::ManagedDomain;
use crate::store::certificates::{IssuedCertificate, time_text};
use serde::Serialize;
use std::time::Instant;

/// A domain in the status.
#[derive(Debug, Serialize)]
pub struct DomainStatus {
    state: DomainState,
    /// When its certificate expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// When it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewal: Option<String>,
    /// The directory of the authority that has issued it.
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    /// Seconds until the next attempt, after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum DomainState {
    /// Its certificate is valid.
    Valid,
    /// It has none yet: clients get a temporary one.
    Temporary,
    /// Its certificate has expired.
    Expired,
}

// === impl DomainStatus ===

impl DomainStatus {
    /// The status of a domain with this certificate.
    pub(super) fn of(domain: &ManagedDomain, certificate: Option<&IssuedCertificate>, now: Instant) -> DomainStatus {
        let expires = certificate.map(|certificate| certificate.validity().until);
        let state = match expires {
            None => DomainState::Temporary,
            Some(until) if until < domain.time(now) => DomainState::Expired,
            Some(_) => DomainState::Valid,
        };
        let has_failed = domain.last_failure.is_some() && domain.order.is_none();
        DomainStatus {
            state,
            expires: expires.map(time_text),
            renewal: domain.renewal_time(certificate).map(time_text),
            authority: certificate.map(|certificate| certificate.origin.directory.clone()),
            next_attempt: has_failed.then(|| domain.pause(certificate, now).as_secs()),
            last_error: domain.last_failure.clone(),
        }
    }
}
