//! Certificates by themselves: which domains need one, the orders under way, and the challenges that the router answers.
//!
//! The supervisor decides, stores and passes on; a process of its own talks to the authorities. Each domain has one certificate
//! for all listeners. Until the first one is issued, the router has a temporary one. A failure is logged with its remedy,
//! and the next attempt follows after a pause; what serves goes on with what it has.
//!
//! - `domain`: what is known of one certificate, and when it is the turn of the next attempt
//! - `orders`: from the attempt to the certificate
//! - `answers`: the router gives them to the authorities' challenges
//! - `records`: the records of orders in the DNS
//! - `on_demand`: names that clients ask for, and the configuration does not have
//! - `clock`: the clock of this machine may jump
//! - `process`: its start, its messages, its end
//! - `stop`: its end when howdah shuts down
//! - `status`: for `GET /status`

mod answers;
mod clock;
mod domain;
mod on_demand;
mod orders;
mod process;
mod records;
mod status;
mod stop;

pub use status::DomainStatus;

use crate::os::identity::UserAccount;
use crate::store::certificates::{Certificates, StoredAccount};
use answers::Answers;
use clock::MachineClock;
use domain::{ManagedDomain, Permission};
use howdah_config::Configuration;
use howdah_protocol::messages::acme::{FailureCause, FromAcme, OrderFailure, ToAcme, WindowQuestion};
use howdah_protocol::test_time::divided_for_acme;
use on_demand::OnDemandNames;
use process::AcmeProcess;
use records::OrderRecords;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The domains, and the process that obtains their certificates.
#[derive(Debug)]
pub struct AcmeControl {
    account: UserAccount,
    domains: BTreeMap<String, ManagedDomain>,
    process: Option<AcmeProcess>,
    /// Since when the process has had nothing to do.
    idle_since: Option<Instant>,
    /// Of the next order, or of the next question.
    next_number: u64,
    accounts: Vec<StoredAccount>,
    /// The answers to the challenges of orders under way.
    answers: Answers,
    /// Their records in the DNS.
    records: OrderRecords,
    has_new_certificates: bool,
    /// The names that clients have asked for.
    on_demand: OnDemandNames,
    /// When to try again to store what could not be stored.
    store_at: Option<Instant>,
    clock: MachineClock,
    /// When [`Self::on_time`] has something to do: known when it has looked at all domains. After a change, at once.
    wake_at: Option<Instant>,
    /// While howdah shuts down: when the process is killed.
    stop_by: Option<Instant>,
}

/// How long the process is kept without orders.
const KEPT_IDLE: Duration = Duration::from_secs(10);
/// How often the wall clock is looked at: it may jump.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(60);
/// How often storing is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(60);

// === impl AcmeControl ===

impl AcmeControl {
    /// Without domains. The process runs as this account.
    pub fn new(account: UserAccount, accounts: Vec<StoredAccount>) -> AcmeControl {
        AcmeControl {
            account,
            domains: BTreeMap::new(),
            process: None,
            idle_since: None,
            next_number: 1,
            accounts,
            answers: Answers::default(),
            records: OrderRecords::default(),
            has_new_certificates: false,
            on_demand: OnDemandNames::new(),
            store_at: None,
            clock: MachineClock::new(),
            wake_at: None,
            stop_by: None,
        }
    }

    /// Takes over the domains of a configuration that is active now.
    pub fn update(&mut self, configuration: &Configuration, certificates: &Certificates, now: Instant) {
        let listeners = configuration.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.acme.as_ref());
        let former_names: BTreeSet<String> = self.names_on_demand().map(str::to_owned).collect();
        let mut former = std::mem::take(&mut self.domains);
        for acme in listeners {
            for name in &acme.domains {
                if self.domains.contains_key(name) {
                    continue;
                }
                let certificate = certificates.issued(name);
                let known =
                    former.remove(name).filter(|known| known.issuance == acme.issuance && !known.is_on_demand());
                let is_known = known.is_some();
                let domain = known.unwrap_or_else(|| ManagedDomain::new(acme.issuance.clone(), certificate, now));
                if certificate.is_none() && !is_known {
                    tracing::warn!(
                        "{name} has no certificate yet; until an authority has issued one, clients get a temporary one, \
                         which browsers warn of"
                    );
                }
                self.domains.insert(name.clone(), domain);
            }
        }
        let asks_another = self.on_demand.update(configuration);
        if let Some((on_demand, issuance)) = self.on_demand.settings() {
            let asked_for = former.iter().filter(|(_, domain)| domain.is_on_demand()).map(|(name, _)| name.clone());
            let stored = certificates.issued_on_demand().map(str::to_owned);
            let names: BTreeSet<String> = asked_for.chain(stored).collect();
            let names: Vec<_> = names.into_iter().filter(|name| !self.domains.contains_key(name)).collect();
            for name in names.into_iter().take(on_demand.names as usize) {
                let certificate = certificates.issued(&name);
                let known = former.remove(&name).filter(|known| known.is_on_demand() && known.issuance == *issuance);
                let mut domain = known.unwrap_or_else(|| ManagedDomain::on_demand(issuance.clone(), certificate, now));
                if asks_another && domain.permission == Permission::Asked {
                    domain.permission = Permission::Needed;
                }
                self.domains.insert(name, domain);
            }
        }
        let names: BTreeSet<String> = self.names_on_demand().map(str::to_owned).collect();
        names.symmetric_difference(&former_names).for_each(|name| self.on_demand.on_change(name));
        // The process goes on with orders that no domain waits for; their results are ignored.
        let ended = former.into_values().filter_map(|domain| domain.order).map(|(order, _)| order);
        ended.for_each(|order| self.answers.forget(order));
        self.wake_at = Some(now);
    }

    /// The status of each domain.
    pub fn status(&self, certificates: &Certificates, now: Instant) -> BTreeMap<String, DomainStatus> {
        let status = |(name, domain): (&String, &ManagedDomain)| {
            (name.clone(), DomainStatus::of(domain, certificates.issued(name), now))
        };
        self.domains.iter().map(status).collect()
    }

    // Time

    /// When [`Self::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake_at
    }

    /// The same, from all domains.
    fn find_deadline(&self, certificates: &Certificates, now: Instant) -> Option<Instant> {
        let free = self.free_places();
        let of_domain = |(name, domain): (&String, &ManagedDomain)| match domain.order {
            Some((_, deadline)) => Some(deadline),
            None => {
                let pause = domain.pause(certificates.issued(name), now).min(divided_for_acme(LOOK_AT_CLOCK));
                let can_begin = match domain.permission {
                    Permission::Configured => free.all > 0,
                    Permission::Needed => self.on_demand.has_room(),
                    Permission::Asked => false,
                    Permission::Given => free.all > 0 && free.on_demand > 0,
                };
                let attempt = can_begin.then_some(now + pause);
                attempt.into_iter().chain(domain.ask_at()).min()
            }
        };
        let idle = self.idle_since.map(|since| since + KEPT_IDLE);
        self.domains
            .iter()
            .filter_map(of_domain)
            .chain(idle)
            .chain(self.store_at)
            .chain(self.records.next_deadline())
            .chain(self.on_demand.next_deadline())
            .min()
    }

    /// Begins the attempts that are due, and ends those that take too long.
    pub fn on_time(&mut self, certificates: &mut Certificates, now: Instant) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        if self.stop_by.is_some() {
            return self.stop_on_time(certificates, now);
        }
        self.clock.look(!self.domains.is_empty(), now);
        if self.store_at.is_some_and(|at| at <= now) {
            store_again(certificates);
            self.store_at = certificates.has_unstored().then(|| now + divided_for_acme(STORE_AGAIN));
        }
        let overdue = |domain: &ManagedDomain| domain.order.filter(|(_, deadline)| *deadline <= now);
        if self.domains.values().any(|domain| overdue(domain).is_some()) {
            tracing::error!("the process that obtains certificates does not answer; killing it");
            self.on_process_end("did not answer in time", now);
        }
        for question in self.on_demand.questions_without_answer(Some(now)) {
            self.on_no_answer(question, "it did not answer in time", now);
        }
        for name in self.next_orders(certificates, now) {
            self.begin_order(&name, certificates, now);
        }
        let names: Vec<String> = self.domains.keys().cloned().collect();
        for name in names {
            let Some(domain) = self.domains.get_mut(&name).filter(|domain| domain.order.is_none()) else { continue };
            let certificate = certificates.issued(&name);
            let is_due = domain.pause(certificate, now).is_zero();
            if is_due && domain.permission == Permission::Needed && self.on_demand.has_room() {
                domain.permission = Permission::Asked;
                self.ask_for_name(name, now);
            } else if domain.ask_at().is_some_and(|at| at <= now)
                && let Some(certificate) = certificate
            {
                let question = self.next_number;
                self.next_number += 1;
                domain.on_ask(question, now);
                // The authority that has issued it, if it is still among the configured ones.
                let directory = &certificate.origin.directory;
                let authority = domain.issuance.authorities.iter().find(|known| known.directory == *directory).cloned();
                if let Some(authority) = authority.map(|authority| self.order_authority(&authority, certificates)) {
                    let certificate = certificate.chain().to_owned();
                    self.send(
                        ToAcme::AskForWindow(WindowQuestion { question, domain: name, authority, certificate }),
                        now,
                    );
                }
            }
        }
        for removal in self.records.take_due(Some(now)) {
            tracing::info!("removing the record {}, which a process that was killed has left", removal.record.name);
            self.send(ToAcme::RemoveRecord(Box::new(removal)), now);
        }
        let is_busy = self.orders() > 0 || self.on_demand.is_asking() || self.records.are_in_work();
        if self.process.is_none() || is_busy {
            self.idle_since = None;
        } else if *self.idle_since.get_or_insert(now) + KEPT_IDLE <= now {
            // The end of its socket ends it.
            self.process = None;
            self.idle_since = None;
        }
        self.wake_at = self.find_deadline(certificates, now);
    }

    // The process

    /// Sends a message, and starts the process for it if it does not run.
    fn send(&mut self, message: ToAcme, now: Instant) {
        if self.process.is_none() {
            match AcmeProcess::start(&self.account) {
                Ok(process) => self.process = Some(process),
                Err(error) => return self.on_process_end(&format!("cannot be started: {error}"), now),
            }
        }
        if let Some(process) = &mut self.process {
            process.send(message);
        }
    }

    /// Its next message; `None` when it has closed its socket.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromAcme>> {
        self.process.as_mut().map_or(Poll::Pending, |process| process.poll_receive(cx))
    }

    /// A child has died. If it is the process, its orders have failed.
    pub fn on_death(&mut self, pid: Pid, end: &str, now: Instant) {
        if self.process.as_ref().is_some_and(|process| process.is_process(pid)) {
            self.on_process_end(end, now);
            self.wake_at = Some(now);
        }
    }

    /// The process is of no use any more.
    fn on_process_end(&mut self, end: &str, now: Instant) {
        self.kill_process();
        self.records.on_process_end(now);
        if self.stop_by.take().is_some() {
            self.records.give_up();
        }
        for question in self.on_demand.questions_without_answer(None) {
            self.on_no_answer(question, &format!("the process that asks it {end}; see howdah's log"), now);
        }
        let orders: Vec<_> = self.domains.values().filter_map(|domain| domain.order).collect();
        for (order, _) in orders {
            let reason = format!("the process that obtains certificates {end}; see howdah's log");
            self.on_failure(
                order,
                &OrderFailure { cause: FailureCause::Challenge, reason, retry_after_seconds: None },
                now,
            );
        }
    }

    /// Kills the process, and reads its last reports of records. Its other messages have no use any more.
    fn kill_process(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        process.kill();
        while let Some(message) = process.try_receive() {
            if let FromAcme::Record { order, record } = message {
                self.records.on_report(order, record);
            }
        }
    }

    /// A message of the process; `None` when it has closed its socket.
    pub fn on_message(&mut self, message: Option<FromAcme>, certificates: &mut Certificates, now: Instant) {
        match message {
            None => self.on_process_end("has ended", now),
            Some(FromAcme::Account { directory, key_id, credentials }) => {
                self.on_account(StoredAccount { directory, key_id, credentials }, certificates, now);
            }
            Some(FromAcme::NameAnswer { question, answer: Ok(is_allowed) }) => {
                self.on_name_answer(question, is_allowed, certificates, now);
            }
            Some(FromAcme::NameAnswer { question, answer: Err(reason) }) => self.on_no_answer(question, &reason, now),
            Some(FromAcme::Challenge { order, answer }) => {
                if self.domain_of(order).is_some() {
                    self.answers.add(order, answer);
                }
            }
            Some(FromAcme::Record { order, record }) => self.records.on_report(order, record),
            Some(FromAcme::Obtained { order, pem }) => {
                self.records.on_result(order);
                self.on_obtained(order, &pem.0, certificates, now);
            }
            Some(FromAcme::Failed { order, failure }) => {
                self.records.on_result(order);
                self.on_failure(order, &failure, now);
            }
            Some(FromAcme::RenewalWindow { question, window, ask_again_seconds }) => {
                for domain in self.domains.values_mut() {
                    domain.on_window(question, window, Duration::from_secs(ask_again_seconds), now);
                }
            }
        }
        self.wake_at = Some(now);
    }

    fn on_account(&mut self, account: StoredAccount, certificates: &mut Certificates, now: Instant) {
        tracing::info!("made an account at {}", account.directory);
        if let Err(problem) = certificates.put_account(&account) {
            tracing::error!(
                "the account at {} is lost at the end of howdah if it cannot be stored before: {problem}",
                account.directory
            );
            self.store_later(now);
        }
        self.accounts.retain(|known| known.directory != account.directory || known.key_id != account.key_id);
        self.accounts.push(account);
    }

    /// Something could not be stored.
    fn store_later(&mut self, now: Instant) {
        self.store_at.get_or_insert(now + divided_for_acme(STORE_AGAIN));
    }

    // The router

    /// Whether certificates were issued since the last question.
    pub fn take_new_certificates(&mut self) -> bool {
        std::mem::take(&mut self.has_new_certificates)
    }

    /// The answers to challenges, for the router.
    pub fn answers(&mut self) -> &mut Answers {
        &mut self.answers
    }

    /// The router answers the challenges of this set.
    pub fn on_answered(&mut self, version: u64) {
        for order in self.answers.on_answered(version) {
            if let Some(process) = &mut self.process {
                process.send(ToAcme::ChallengeIsAnswered { order });
            }
        }
    }
}

fn store_again(certificates: &mut Certificates) {
    for stored in certificates.store_again() {
        tracing::info!("{stored}, which could not be stored before, is stored now");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::certificates::CertificateOrigin;
    use howdah_protocol::messages::acme::Secret;

    const SHOP: &str = "shop.example";
    const BLOG: &str = "blog.example";
    const ASKED: &str = "asked.example";

    fn configuration() -> Configuration {
        let acme = format!(
            r#"{{"domains": ["{SHOP}", "{BLOG}"], "authorities": [{{"directory": "http://127.0.0.1:1/"}}],
                "on_demand": {{"ask": "http://127.0.0.1:1/"}}}}"#
        );
        let text =
            format!(r#"{{"routes": [], "listeners": {{"*:1": {{"pass": "routes", "tls": {{"acme": {acme}}}}}}}}}"#);
        Configuration::parse(&text).unwrap()
    }

    fn pem(name: &str) -> String {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        made.cert.pem() + &made.signing_key.serialize_pem()
    }

    /// The configured domains have certificates of an authority that is not configured: there is nothing to do at first.
    fn control(now: Instant) -> (AcmeControl, Certificates) {
        let mut certificates = Certificates::default();
        for name in [SHOP, BLOG] {
            let (directory, challenge) = ("http://127.0.0.1:2/".to_owned(), "http".to_owned());
            let origin = CertificateOrigin { directory, challenge, on_demand: false };
            certificates.put_issued(name, origin, &pem(name)).unwrap();
        }
        let mut control = AcmeControl::new(UserAccount { ids: None, name: None }, Vec::new());
        control.update(&configuration(), &certificates, now);
        (control, certificates)
    }

    #[test]
    fn the_next_look_at_the_domains_is_known_without_one() {
        let now = Instant::now();
        let (mut control, mut certificates) = control(now);
        assert_eq!(control.next_deadline(), Some(now), "after a configuration");
        control.on_time(&mut certificates, now);
        assert_eq!(control.next_deadline(), Some(now + divided_for_acme(LOOK_AT_CLOCK)));
        let failure = OrderFailure { cause: FailureCause::Authority, reason: String::new(), retry_after_seconds: None };
        let (directory, credentials) = ("http://127.0.0.1:1/".to_owned(), Secret(String::new()));
        let events = [
            ("an account", Some(FromAcme::Account { directory, key_id: None, credentials })),
            ("a failure", Some(FromAcme::Failed { order: 1001, failure })),
            ("a certificate", Some(FromAcme::Obtained { order: 1002, pem: Secret(pem(BLOG)) })),
            ("a window", Some(FromAcme::RenewalWindow { question: 1003, window: None, ask_again_seconds: 60 })),
            ("a name", Some(FromAcme::NameAnswer { question: 1004, answer: Ok(true) })),
            ("the end of the process", None),
        ];
        let mut at = now;
        for (name, event) in events {
            at += Duration::from_millis(1);
            for (domain, order) in [(SHOP, 1001), (BLOG, 1002)] {
                control.domains.get_mut(domain).unwrap().order = Some((order, at + Duration::from_secs(900)));
            }
            control.on_demand.on_question(1004, ASKED, at);
            control.on_message(event, &mut certificates, at);
            assert_eq!(control.next_deadline(), Some(at), "{name}: all domains are looked at again");
        }
        control.wake_at = None;
        control.on_unknown_name("localhost".to_owned(), at);
        assert_eq!(control.next_deadline(), Some(at), "a client's name");
        control.stop(&mut certificates, at);
        assert_eq!(control.next_deadline(), None);
    }

    #[test]
    fn nothing_is_looked_at_before_its_time() {
        let now = Instant::now();
        let (mut control, mut certificates) = control(now);
        control.on_time(&mut certificates, now);
        let deadline = now + Duration::from_millis(5);
        control.domains.get_mut(SHOP).unwrap().order = Some((1001, deadline));
        control.wake_at = control.find_deadline(&certificates, now);
        assert_eq!(control.next_deadline(), Some(deadline));
        control.on_time(&mut certificates, deadline - Duration::from_millis(1));
        assert!(control.domains[SHOP].order.is_some() && control.next_deadline() == Some(deadline));
        control.on_time(&mut certificates, deadline);
        assert!(control.domains[SHOP].order.is_none(), "the process does not answer");
        assert!(control.next_deadline() > Some(deadline), "the next attempt has a pause");
    }

    #[test]
    fn a_router_gets_only_the_certificates_on_demand_that_have_changed() {
        let now = Instant::now();
        let (mut control, mut certificates) = control(now);
        let sent = |control: &mut AcmeControl, certificates: &Certificates| {
            let (message, mut memory) = control.take_new_on_demand(certificates)?;
            let mut text = String::new();
            let mut file = std::fs::File::from(memory.remove(0));
            std::io::Seek::rewind(&mut file).unwrap();
            std::io::Read::read_to_string(&mut file, &mut text).unwrap();
            let all =
                matches!(message, howdah_protocol::messages::router::ToRouter::OnDemandCertificates { all: true });
            let pems: BTreeMap<String, Option<String>> = serde_json::from_str(&text).unwrap();
            Some((all, pems.into_iter().map(|(name, pem)| (name, pem.is_some())).collect::<Vec<_>>()))
        };
        assert_eq!(sent(&mut control, &certificates), Some((true, Vec::new())), "the settings are new");
        for (order, name) in [(1, "a.example"), (2, "b.example")] {
            control.on_demand.on_question(order, name, now);
            control.on_message(
                Some(FromAcme::NameAnswer { question: order, answer: Ok(true) }),
                &mut certificates,
                now,
            );
            control.domains.get_mut(name).unwrap().order = Some((order, now + KEPT_IDLE));
            let message = FromAcme::Obtained { order, pem: Secret(pem(name)) };
            control.on_message(Some(message), &mut certificates, now);
        }
        let both = vec![("a.example".to_owned(), true), ("b.example".to_owned(), true)];
        assert_eq!(sent(&mut control, &certificates), Some((false, both)));
        assert_eq!(sent(&mut control, &certificates), None);
        control.on_demand.on_question(3, "a.example", now);
        let refused = FromAcme::NameAnswer { question: 3, answer: Ok(false) };
        control.on_message(Some(refused), &mut certificates, now);
        assert_eq!(sent(&mut control, &certificates), Some((false, vec![("a.example".to_owned(), false)])));
        let (_, memory) = control.on_demand_for_new_router(&certificates).unwrap();
        assert_eq!(memory.len(), 1);
    }
}
