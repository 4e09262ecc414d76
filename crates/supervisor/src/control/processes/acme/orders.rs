//! The orders of certificates, from the attempt that is due to the certificate that is stored, or to the next attempt.

use super::AcmeControl;
use super::domain::{ManagedDomain, Permission};
use crate::policy::order_places::{self, FreePlaces, WaitingOrder};
use crate::store::certificates::{CertificateOrigin, Certificates, IssuedCertificate, time_text};
use howdah_config::{AcmeAuthority, AcmeChallenge, AcmeKey};
use howdah_protocol::messages::acme::{
    CertificateOrder, FailureCause, OrderAuthority, OrderChallenge, OrderFailure, OrderKey, Secret, ToAcme,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most orders at a time; the others wait.
const ORDERS_AT_ONCE: usize = 8;
/// The same for names on demand, so that strangers do not delay the configured names.
const ORDERS_ON_DEMAND_AT_ONCE: usize = 4;
/// The process has its own deadline, which is shorter. The wait for the DNS comes on top of both.
const ORDER_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// A name on demand without a certificate is given up after this number of rounds.
const ROUNDS_ON_DEMAND: u32 = 3;

// === impl AcmeControl ===

impl AcmeControl {
    /// Orders a certificate of this domain.
    pub(super) fn begin_order(&mut self, name: &str, certificates: &Certificates, now: Instant) {
        let Some(domain) = self.domains.get(name) else { return };
        let (authority, challenge) = (domain.authority(), domain.challenge());
        tracing::info!("asking {} for a certificate of {name} ({})", authority.directory, challenge.as_str());
        let order = self.next_number;
        let former = certificates.issued(name).filter(|issued| issued.origin.directory == authority.directory);
        let message = CertificateOrder {
            order,
            domain: name.to_owned(),
            authority: self.order_authority(authority, certificates),
            contact: domain.issuance.contact.clone(),
            challenge: match (challenge, &domain.issuance.dns) {
                (AcmeChallenge::Http, _) => OrderChallenge::Http,
                (AcmeChallenge::Dns, Some(dns)) => {
                    OrderChallenge::Dns { command: dns.command.clone(), wait_seconds: dns.wait.as_secs() }
                }
                (AcmeChallenge::TlsAlpn | AcmeChallenge::Dns, _) => OrderChallenge::TlsAlpn,
            },
            replaces: former.map(|former| former.chain().to_owned()),
            key: match domain.issuance.key {
                AcmeKey::P256 => OrderKey::P256,
                AcmeKey::P384 => OrderKey::P384,
            },
        };
        let mut patience = ORDER_PATIENCE;
        if let OrderChallenge::Dns { command, wait_seconds } = &message.challenge {
            self.records.on_order(order, command.clone());
            patience += Duration::from_secs(*wait_seconds);
        }
        self.next_number += 1;
        if let Some(domain) = self.domains.get_mut(name) {
            domain.order = Some((order, now + patience));
        }
        self.send(ToAcme::Obtain(Box::new(message)), now);
    }

    /// An authority, with the account at it.
    pub(super) fn order_authority(&self, authority: &AcmeAuthority, certificates: &Certificates) -> OrderAuthority {
        let key_id = authority.external_account.as_ref().map(|account| account.key_id.clone());
        let known = self.accounts.iter().find(|known| known.directory == authority.directory && known.key_id == key_id);
        OrderAuthority {
            directory: authority.directory.clone(),
            roots: authority.roots.as_deref().and_then(|name| certificates.authorities(name)),
            external_account: authority
                .external_account
                .as_ref()
                .map(|account| Secret((account.key_id.clone(), account.hmac_key.clone()))),
            credentials: known.map(|known| known.credentials.clone()),
        }
    }

    /// The number of orders under way.
    pub(super) fn orders(&self) -> usize {
        self.domains.values().filter(|domain| domain.order.is_some()).count()
    }

    /// The places for further orders.
    pub(super) fn free_places(&self) -> FreePlaces {
        let on_demand = self.domains.values().filter(|domain| domain.order.is_some() && domain.is_on_demand()).count();
        FreePlaces {
            all: ORDERS_AT_ONCE.saturating_sub(self.orders()),
            on_demand: ORDERS_ON_DEMAND_AT_ONCE.saturating_sub(on_demand),
        }
    }

    /// The names whose orders begin now. The others that are due wait for a place.
    pub(super) fn next_orders(&mut self, certificates: &Certificates, now: Instant) -> Vec<String> {
        for (name, domain) in &mut self.domains {
            let is_due = domain.order.is_none()
                && matches!(domain.permission, Permission::Configured | Permission::Given)
                && domain.pause(certificates.issued(name), now).is_zero();
            domain.waiting_since = is_due.then(|| domain.waiting_since.unwrap_or(now));
        }
        let mut running = BTreeMap::new();
        for domain in self.domains.values().filter(|domain| domain.order.is_some()) {
            *running.entry(domain.authority().directory.as_str()).or_default() += 1;
        }
        let waiting = self.domains.iter().filter_map(|(name, domain)| {
            let (authority, is_on_demand) = (domain.authority().directory.as_str(), domain.is_on_demand());
            Some(WaitingOrder { name, authority, since: domain.waiting_since?, is_on_demand })
        });
        order_places::next_orders(waiting.collect(), running, self.free_places())
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// An authority has issued a certificate.
    pub(super) fn on_obtained(&mut self, order: u64, pem: &str, certificates: &mut Certificates, now: Instant) {
        self.answers.forget(order);
        let Some((name, domain)) = self.domain_of(order) else { return };
        let name = name.clone();
        let (directory, challenge) = (domain.authority().directory.clone(), domain.challenge());
        let on_demand = domain.is_on_demand();
        let origin =
            CertificateOrigin { directory: directory.clone(), challenge: challenge.as_str().to_owned(), on_demand };
        match certificates.put_issued(&name, origin, pem) {
            Ok(warning) => {
                let Some(validity) = certificates.issued(&name).map(IssuedCertificate::validity) else { return };
                if let Some(domain) = self.domains.get_mut(&name) {
                    domain.on_success(validity, now);
                }
                if on_demand {
                    self.on_demand.on_change(&name);
                } else {
                    self.has_new_certificates = true;
                }
                let until = time_text(validity.until);
                tracing::info!("{directory} has issued a certificate of {name}, valid until {until}");
                self.clock.compare(&directory, validity);
                if let Some(warning) = warning {
                    tracing::error!(
                        "the certificate of {name} is used, but lost at the end of howdah if it cannot be stored before: \
                         {warning}"
                    );
                    self.store_later(now);
                }
            }
            Err(problem) => {
                let reason = format!("the authority has not sent a certificate that can be used: {problem}");
                let failure = OrderFailure { cause: FailureCause::Authority, reason, retry_after_seconds: None };
                self.on_failure(order, &failure, now);
            }
        }
    }

    /// An order has failed.
    pub(super) fn on_failure(&mut self, order: u64, failure: &OrderFailure, now: Instant) {
        self.answers.forget(order);
        let found = self.domains.iter_mut().find(|(_, domain)| domain.order.is_some_and(|(known, _)| known == order));
        let Some((name, domain)) = found else { return };
        let (directory, challenge) = (domain.authority().directory.clone(), domain.challenge().as_str());
        let pause = domain.on_failure(failure, now);
        let next = match pause.as_secs() {
            0 if pause.is_zero() => {
                format!("trying {} with {}", domain.authority().directory, domain.challenge().as_str())
            }
            0..120 => format!("trying again in {} s", pause.as_secs()),
            seconds => format!("trying again in {} min", seconds / 60),
        };
        let is_hopeless =
            domain.is_on_demand() && !domain.has_certificate() && domain.failed_rounds >= ROUNDS_ON_DEMAND;
        let next = if is_hopeless { "giving up this name, which is not in the configuration".to_owned() } else { next };
        tracing::error!("{directory} has not issued a certificate of {name} ({challenge}): {}; {next}", failure.reason);
        if is_hopeless {
            let name = name.clone();
            self.domains.remove(&name);
            self.on_demand.on_hopeless(&name, now);
        }
    }

    /// The domain that waits for this order.
    pub(super) fn domain_of(&self, order: u64) -> Option<(&String, &ManagedDomain)> {
        self.domains.iter().find(|(_, domain)| domain.order.is_some_and(|(known, _)| known == order))
    }
}
