//! The way of a name on demand: from the router's report over the question to the order, and back to the router.

use super::AcmeControl;
use super::domain::{ManagedDomain, Permission};
use super::on_demand::{Complaint, NO_ANSWER};
use crate::os::files::memory_file::memory_file;
use crate::store::certificates::Certificates;
use howdah_protocol::messages::acme::{NameQuestion, ToAcme};
use howdah_protocol::messages::router::ToRouter;
use std::os::fd::OwnedFd;
use std::time::Instant;

// === impl AcmeControl ===

impl AcmeControl {
    /// A client asks for a name without a certificate.
    pub fn on_unknown_name(&mut self, name: String, now: Instant) {
        let names = self.domains.values().filter(|domain| domain.is_on_demand()).count();
        if self.domains.contains_key(&name) || self.on_demand.is_asked(&name) {
            return;
        }
        if self.on_demand.is_worth_asking(&name, names, now) {
            self.ask_for_name(name, now);
        } else {
            self.on_demand.reject(name);
        }
    }

    /// The names of handshakes that wait in vain.
    pub fn take_rejected_names(&mut self) -> Vec<String> {
        self.on_demand.take_rejected()
    }

    pub(super) fn ask_for_name(&mut self, name: String, now: Instant) {
        let question = self.next_number;
        self.next_number += 1;
        let url = self.on_demand.on_question(question, &name, now);
        self.send(ToAcme::AskForName(NameQuestion { question, url, name }), now);
    }

    /// The operator's program has answered, or not.
    pub(super) fn on_name_answer(
        &mut self,
        question: u64,
        answer: Result<bool, String>,
        certificates: &mut Certificates,
        now: Instant,
    ) {
        let Some(name) = self.on_demand.take_question(question) else { return };
        // Another configuration may have come meanwhile.
        let Some((on_demand, issuance)) = self.on_demand.settings() else { return };
        let (url, names) = (on_demand.ask.clone(), on_demand.names as usize);
        let issuance = issuance.clone();
        let on_demand = self.domains.values().filter(|domain| domain.is_on_demand()).count();
        match (answer, self.domains.get_mut(&name)) {
            (_, Some(domain)) if !domain.is_on_demand() => {}
            (Ok(true), Some(domain)) => domain.permission = Permission::Given,
            (Ok(true), None) => {
                if on_demand >= names {
                    self.on_demand.on_refusal(&name, now);
                } else if self.on_demand.admits(&name, now) {
                    tracing::info!("{url} allows a certificate of {name}, which a client asks for");
                    // It may have been in the configuration before.
                    let certificate = certificates.issued(&name);
                    if certificate.is_some() {
                        self.on_demand.add_new(&name);
                    }
                    self.domains.insert(name, ManagedDomain::on_demand(issuance, certificate, now));
                }
            }
            (Ok(false), Some(_)) => {
                tracing::info!("{url} does not allow {name} any more; its certificate is removed");
                self.domains.remove(&name);
                if let Err(problem) = certificates.remove_issued(&name) {
                    tracing::error!("{problem}");
                }
                self.on_demand.replace_all();
                self.on_demand.on_refusal(&name, now);
            }
            (Ok(false), None) => {
                tracing::debug!("{url} does not allow {name}");
                self.on_demand.on_refusal(&name, now);
            }
            (Err(reason), domain) => {
                if let Some(domain) = domain {
                    domain.on_no_permission(NO_ANSWER, now);
                }
                self.on_demand.on_no_answer(&name, now);
                if self.on_demand.complains(Complaint::Program, now) {
                    tracing::error!(
                        "{url} does not answer whether {name} may get a certificate: {reason}; asking again later"
                    );
                }
            }
        }
    }

    /// The message with the certificates on demand that the router does not have, if there are some.
    pub fn take_new_on_demand(&mut self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        match self.on_demand.take_new() {
            None => self.on_demand_certificates(certificates),
            Some(new) if new.is_empty() => None,
            Some(new) => {
                let text = certificates.issued_for_router(new.iter().map(String::as_str));
                Some((ToRouter::OnDemandCertificates { all: false }, vec![memory_file(text.as_bytes()).ok()?]))
            }
        }
    }

    /// The message with all certificates on demand, for a new router; `None` without settings.
    pub fn on_demand_for_new_router(&self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        self.on_demand.settings().and_then(|_| self.on_demand_certificates(certificates))
    }

    fn on_demand_certificates(&self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        let names = self.domains.iter().filter(|(_, domain)| domain.is_on_demand()).map(|(name, _)| name.as_str());
        let text = certificates.issued_for_router(names);
        Some((ToRouter::OnDemandCertificates { all: true }, vec![memory_file(text.as_bytes()).ok()?]))
    }
}
