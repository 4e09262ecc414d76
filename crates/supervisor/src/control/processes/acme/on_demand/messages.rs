//! The way of a name on demand: from the router's report over the question to the order, and back to the router.

use super::names::{Complaint, NO_ANSWER};
use crate::control::processes::acme::AcmeControl;
use crate::control::processes::acme::domain::{ManagedDomain, Permission};
use crate::os::files::memory_file::memory_file;
use crate::store::certificates::Certificates;
use howdah_protocol::messages::acme::{NameQuestion, ToAcme};
use howdah_protocol::messages::router::ToRouter;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

// === impl AcmeControl ===

impl AcmeControl {
    /// A client asks for a name without a certificate.
    pub fn on_unknown_name(&mut self, name: String, now: Instant) {
        if self.domains.contains_key(&name) || self.on_demand.is_asked(&name) {
            return;
        }
        let names = self.names_on_demand().count();
        if self.on_demand.is_worth_asking(&name, names, now) {
            self.ask_for_name(name, now);
        } else {
            self.on_demand.reject(name);
        }
        self.wake_at = Some(now);
    }

    /// The names of handshakes that wait in vain.
    pub fn take_rejected_names(&mut self) -> Vec<String> {
        self.on_demand.take_rejected()
    }

    pub(in crate::control::processes::acme) fn ask_for_name(&mut self, name: String, now: Instant) {
        let question = self.next_number;
        self.next_number += 1;
        let url = self.on_demand.on_question(question, &name, now);
        self.send(ToAcme::AskForName(NameQuestion { question, url, name }), now);
    }

    /// The operator's program has answered.
    pub(in crate::control::processes::acme) fn on_name_answer(
        &mut self,
        question: u64,
        is_allowed: bool,
        certificates: &mut Certificates,
        now: Instant,
    ) {
        let Some(name) = self.on_demand.take_question(question) else { return };
        // Another configuration may have come meanwhile.
        let Some((on_demand, issuance)) = self.on_demand.settings() else { return };
        let (url, most_names, issuance) = (on_demand.ask.clone(), on_demand.names as usize, issuance.clone());
        let has_room = self.names_on_demand().count() < most_names;
        match (is_allowed, self.domains.get_mut(&name)) {
            (_, Some(domain)) if !domain.is_on_demand() => {}
            (true, Some(domain)) => domain.permission = Permission::Given,
            (true, None) => {
                if !has_room {
                    self.on_demand.on_refusal(&name, now);
                } else if self.on_demand.admits(&name, now) {
                    tracing::info!("{url} allows a certificate of {name}, which a client asks for");
                    // It may have been in the configuration before.
                    let certificate = certificates.issued(&name);
                    if certificate.is_some() {
                        self.on_demand.on_change(&name);
                    }
                    self.domains.insert(name, ManagedDomain::on_demand(issuance, certificate, now));
                }
            }
            (false, Some(_)) => {
                tracing::info!("{url} does not allow {name} any more; its certificate is removed");
                self.domains.remove(&name);
                if let Err(problem) = certificates.remove_issued(&name) {
                    tracing::error!("{problem}");
                }
                self.on_demand.on_change(&name);
                self.on_demand.on_refusal(&name, now);
            }
            (false, None) => {
                tracing::debug!("{url} does not allow {name}");
                self.on_demand.on_refusal(&name, now);
            }
        }
    }

    /// The operator's program has not answered, for this reason.
    pub(in crate::control::processes::acme) fn on_no_answer(&mut self, question: u64, reason: &str, now: Instant) {
        let Some(name) = self.on_demand.take_question(question) else { return };
        if let Some(domain) = self.domains.get_mut(&name).filter(|domain| domain.is_on_demand()) {
            domain.on_no_permission(NO_ANSWER, now);
        }
        self.on_demand.on_no_answer(&name, now);
        let is_due = self.on_demand.complains(Complaint::Program, now);
        if let Some((on_demand, _)) = self.on_demand.settings().filter(|_| is_due) {
            tracing::error!(
                "{} does not answer whether {name} may get a certificate: {reason}; asking again later",
                on_demand.ask
            );
        }
    }

    /// The names on demand that have a certificate, or are to get one.
    pub(in crate::control::processes::acme) fn names_on_demand(&self) -> impl Iterator<Item = &str> {
        self.domains.iter().filter(|(_, domain)| domain.is_on_demand()).map(|(name, _)| name.as_str())
    }

    /// The message with the changes of certificates on demand that the router does not know, if there are some.
    pub fn take_new_on_demand(&mut self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        let message = match self.on_demand.take_changed() {
            None => self.all_on_demand(certificates),
            Some(changed) if changed.is_empty() => return None,
            Some(changed) => {
                let is_on_demand = |name: &str| self.domains.get(name).is_some_and(ManagedDomain::is_on_demand);
                let certificate = |name| certificates.issued_pem(name).filter(|_| is_on_demand(name));
                certificates_message(false, changed.iter().map(|name| (name.as_str(), certificate(name))))
            }
        };
        if message.is_none() {
            // At the next event, there may be memory.
            self.on_demand.replace_all();
            if self.on_demand.complains(Complaint::Memory, Instant::now()) {
                tracing::error!(
                    "there is no memory to pass the certificates of names on demand to the router; trying again"
                );
            }
        }
        message
    }

    /// The message with all certificates on demand, for a new router; `None` without settings.
    pub fn on_demand_for_new_router(&self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        self.on_demand.settings().and_then(|_| self.all_on_demand(certificates))
    }

    fn all_on_demand(&self, certificates: &Certificates) -> Option<(ToRouter, Vec<OwnedFd>)> {
        certificates_message(true, self.names_on_demand().map(|name| (name, certificates.issued_pem(name))))
    }
}

/// The message with these names and their certificates: `all`, or only changes. `None` without memory for it.
fn certificates_message<'n>(
    all: bool,
    certificates: impl Iterator<Item = (&'n str, Option<&'n str>)>,
) -> Option<(ToRouter, Vec<OwnedFd>)> {
    let text = serde_json::json!(certificates.collect::<BTreeMap<_, _>>()).to_string();
    Some((ToRouter::OnDemandCertificates { all }, vec![memory_file(text.as_bytes()).ok()?]))
}
